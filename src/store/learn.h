#pragma once

#include "store/object_store.h"

namespace millrace {

/// Completes what is known of an object that is to be read in pieces. It adds what `object` does not have yet: the
/// checksum that the store keeps, and the size of the parts it was uploaded in. This takes one or two HEADs, at the
/// same time. If the store has another version by now, nothing is added: the reads, which are pinned by the ETag, will
/// report it. `done` runs on a thread of the store, or within the call if there is nothing to ask. (LearnBlocking:
/// store/blocking.h.)
void LearnObject(ObjectStore& store, ObjectInfo object, HeadCallback done);

}  // namespace millrace
