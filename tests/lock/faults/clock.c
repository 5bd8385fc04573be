/* The clocks of one process as a test wants them. Preloaded (LD_PRELOAD), it is told in a mapped file ($TEST_CLOCK) by how much
 * wall time is off, at what rate it gains since when, and for how long the machine has "slept".
 * System calls, not dlsym: that allocates, and an allocator may ask for the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct knobs {
  int64_t wall_ns, asleep_ns, since_ns;
  double gain;
};
static volatile struct knobs *knobs;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("TEST_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(struct knobs), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) knobs = mapped;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  int result = (int)syscall(SYS_clock_gettime, clock, out);
  if (result || !knobs) return result;
  int64_t now = out->tv_sec * 1000000000LL + out->tv_nsec;
  if (clock == CLOCK_BOOTTIME) now += knobs->asleep_ns;
  else if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
    now += knobs->wall_ns + (int64_t)((double)(now - knobs->since_ns) * knobs->gain);
  out->tv_sec = now / 1000000000LL;
  out->tv_nsec = now % 1000000000LL;
  return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
