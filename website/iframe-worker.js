// Runs the search where the browser allows no worker: in pages that are opened as files. The worker's script runs in a hidden
// frame instead, and the messages between page and worker are events in both windows.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve, reject) => {
        document.addEventListener("DOMContentLoaded", () => this.start(url, resolve, reject));
        if (document.readyState !== "loading") this.start(url, resolve, reject);
      });
    }

    start(url, resolve, reject) {
      if (this.frame.isConnected) return;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => resolve(inside);
      script.onerror = reject;
      inside.document.head.append(script);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
