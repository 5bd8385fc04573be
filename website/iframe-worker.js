// Runs the search where the browser allows no worker: in pages that are opened as files. The worker's script runs in a hidden
// frame instead, and the messages between page and worker are events in both windows.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => {
        document.addEventListener("DOMContentLoaded", () => this.start(url, resolve));
        if (document.readyState !== "loading") this.start(url, resolve);
      });
    }

    start(url, resolve) {
      if (this.frame.isConnected) return;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.onmessage?.(new MessageEvent("message", { data: structuredClone(data) }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => resolve(inside);
      script.onerror = () => this.onerror?.(new ErrorEvent("error"));
      inside.document.head.append(script);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data: inside.structuredClone(data) })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
