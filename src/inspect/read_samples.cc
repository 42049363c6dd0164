#include "inspect/read_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "base/size.h"

namespace millrace {

namespace {

class Reading {
 public:
  Reading(const Dataset& dataset, const PackOrder& order, MemoryBudget& memory, const std::stop_token& stop,
          SampleSink each)
      : dataset_(dataset), order_(order), memory_(memory), stop_(stop), each_(each) {}

  absl::Status Run(Positions positions) {
    while (positions.begin < positions.end) {
      Positions suspects;
      absl::Status status = HandOut(positions, &suspects);
      if (!absl::IsDataLoss(status)) return status;
      // All of the positions are suspects where not even a request could be made.
      suspects.begin = std::max(suspects.begin, next_);
      for (uint64_t position = suspects.begin; position < suspects.end; ++position)
        RETURN_IF_ERROR(HandOutAlone(position));
      positions.begin = suspects.end;
    }
    return absl::OkStatus();
  }

 private:
  // After an error: `suspects` are positions that it may be about.
  absl::Status HandOut(Positions positions, Positions* suspects) {
    SampleReader reader(dataset_, order_, positions, none_, memory_, stop_);
    absl::StatusOr<std::optional<SampleReader::Part>> part = reader.Next();
    for (; part.ok() && *part; part = reader.Next()) Take(**part);
    whole_.clear();
    room_ = Reservation();
    *suspects = reader.Suspects();
    return part.status();
  }

  absl::Status HandOutAlone(uint64_t position) {
    Positions suspects;
    absl::Status status = HandOut({.begin = position, .end = position + 1}, &suspects);
    if (!absl::IsDataLoss(status)) return status;
    IndexedSample sample;
    RETURN_IF_ERROR(dataset_.index().Lookup(order_.At(position), &sample));
    each_(sample, status);
    return absl::OkStatus();
  }

  // Large samples come in parts.
  void Take(const SampleReader::Part& part) {
    if (part.last) next_ = part.position + 1;
    if (part.offset == 0 && part.last) return each_(*part.sample, part.bytes);
    const uint64_t length = part.sample->span.length;
    if (part.offset == 0) {
      whole_.clear();
      room_ = length <= memory_.limit() / 2 ? memory_.TryReserve(length) : Reservation();
      if (room_) whole_.reserve(length);
    }
    if (room_) whole_.append(AsText(part.bytes));
    if (!part.last) return;
    if (room_) {
      each_(*part.sample, AsBytes(whole_));
    } else {
      each_(*part.sample, absl::ResourceExhaustedError(fmt::format("its {} do not fit into half of the {} of memory",
                                                                   FormatSize(length), FormatSize(memory_.limit()))));
    }
    std::string().swap(whole_);
    room_ = Reservation();
  }

  const Dataset& dataset_;
  const PackOrder& order_;
  MemoryBudget& memory_;
  const std::stop_token stop_;
  const SampleSink each_;
  const std::set<uint64_t> none_;
  uint64_t next_ = 0;  // position behind the latest that was handed out
  std::string whole_;  // the parts of a large sample
  Reservation room_;   // for it
};

}  // namespace

absl::Status ReadSamples(const Dataset& dataset, const PackOrder& order, Positions positions, MemoryBudget& memory,
                         const std::stop_token& stop, SampleSink each) {
  return Reading(dataset, order, memory, stop, each).Run(positions);
}

}  // namespace millrace
