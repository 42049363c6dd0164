#pragma once

#include "absl/status/status.h"

namespace millrace {

/// What a program is told of a read that failed with `status`, which is not OK (the table is in docs/mount.md). ESTALE:
/// the object is no longer the one that was opened.
int ErrnoOf(const absl::Status& status);

}  // namespace millrace
