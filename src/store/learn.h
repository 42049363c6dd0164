#pragma once

#include "store/object_store.h"

namespace millrace {

/// Completes what is known of an object that is to be read in pieces, where `object` does not say it: the checksum that
/// the store keeps, and the size of the parts it was uploaded in. One or two HEADs, at once. When the store has another
/// version by now nothing is added: the reads, which are pinned by the ETag, will say so. `done` runs on a thread of
/// the store, or within the call where there is nothing to ask. (LearnBlocking: store/blocking.h.)
void LearnObject(ObjectStore& store, ObjectInfo object, HeadCallback done);

}  // namespace millrace
