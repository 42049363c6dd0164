#include "base/file_limit.h"

#include <sys/resource.h>

namespace millrace {

namespace {

// The limit that this process was started with. One for the process, as the limit is.
rlimit inherited_limit{};
bool raised_limit = false;

}  // namespace

void AllowManyFiles() {
  if (raised_limit || getrlimit(RLIMIT_NOFILE, &inherited_limit) != 0) return;
  const rlimit all{inherited_limit.rlim_max, inherited_limit.rlim_max};
  raised_limit = setrlimit(RLIMIT_NOFILE, &all) == 0;
}

void RestoreFileLimit() {
  if (raised_limit) setrlimit(RLIMIT_NOFILE, &inherited_limit);
}

}  // namespace millrace
