#pragma once

#include "base/bytes.h"
#include "devstore/faults.h"
#include "net/http_server.h"

namespace millrace {

/// Damages a finished answer: delay, pace, stall, cut, reset, close, chunks and flip. Other kinds act while the answer
/// is made and change nothing here. Offsets beyond the body do nothing, except that a cut then happens at its end.
void ApplyFault(const FaultAction& fault, HttpReply* reply);

/// Sets the pace of a body, or lowers it.
void LimitRate(uint64_t bytes_per_second, HttpReply* reply);

/// Returns another range of the same object for `wrong-range`. It has the same length if the object has such a range,
/// else it is shorter. It is the same range if the object has no other.
ByteRange WrongRange(ByteRange range, uint64_t object_size);

}  // namespace millrace
