#pragma once

#include <sys/types.h>

namespace millrace {

/// Returns the process that the thread belongs to, as /proc tells it, or the thread's own number if it does not.
pid_t ProcessOfThread(pid_t thread);

/// Returns true if the thread's process is ending because a signal has killed it. A program whose reader is gone, or
/// that has reached its limit of file sizes, ends by itself: SIGPIPE and SIGXFSZ do not count. False if /proc does not
/// tell. For a process of another user, whose exit status the kernel does not show, also true if a thread other than
/// its first has ended it.
bool WasKilled(pid_t thread);

/// Returns true if a signal that the process does not handle, and that ends it, has reached the thread, which waits
/// within the kernel. Returns false if /proc does not show it.
bool IsBeingKilled(pid_t thread);

}  // namespace millrace
