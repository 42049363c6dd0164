#pragma once

#include <string>

#include "absl/status/status.h"

namespace millrace {

/// Returns the errno that a program gets for `status`, which is not OK (the table is in docs/mount.md). ESTALE: the
/// object is no longer the one that was opened. A status of RefusedWith has the errno that it was made with.
int ErrnoOf(const absl::Status& status);

/// Returns the same for a call that changes something. If a store refuses that, the result is EROFS, not EACCES.
/// Libraries take EACCES and EPERM for "modes cannot be set", and report success if the name exists
/// (docs/semantics.md).
int ErrnoOfChange(const absl::Status& status);

/// Returns the status of a call that the mount itself refuses, with this errno.
absl::Status RefusedWith(int error, const std::string& message);

}  // namespace millrace
