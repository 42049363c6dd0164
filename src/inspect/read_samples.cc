#include "inspect/read_samples.h"

#include <fmt/format.h>

#include <string>

#include "base/size.h"

namespace millrace {

absl::Status ReadSamples(const Dataset& dataset, const SampleOrder& order, Positions positions, MemoryBudget& memory,
                         const std::stop_token& stop, SampleSink each) {
  std::string whole;  // the parts of a large sample
  Reservation room;   // for it
  const auto take = [&](const SampleReader::Part& part) {
    const uint64_t length = part.sample->span.length;
    if (part.offset == 0 && part.last) {
      each(*part.sample, part.bytes);
      return absl::OkStatus();
    }
    if (part.offset == 0) {
      std::string().swap(whole);
      room = Reservation();  // of one that was cut off
      if (length <= memory.limit() / 2) room = memory.TryReserve(length);
      if (room) whole.reserve(length);
    }
    if (room) whole.append(AsText(part.bytes));
    if (!part.last) return absl::OkStatus();
    if (room) {
      each(*part.sample, AsBytes(whole));
    } else {
      each(*part.sample, absl::ResourceExhaustedError(fmt::format("its {} do not fit into half of the {} of memory",
                                                                  FormatSize(length), FormatSize(memory.limit()))));
    }
    std::string().swap(whole);
    room = Reservation();
    return absl::OkStatus();
  };
  const auto bad = [&](uint64_t position, const absl::Status& status) -> absl::Status {
    if (!absl::IsDataLoss(status)) return status;
    IndexedSample sample;
    RETURN_IF_ERROR(dataset.index().Lookup(order.At(position), &sample));
    each(sample, status);
    return absl::OkStatus();
  };
  return VisitSamples(dataset, order, positions, {}, memory, stop, take, bad);
}

}  // namespace millrace
