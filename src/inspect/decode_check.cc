#include "inspect/decode_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "base/size.h"
#include "dataset/field_of_sample.h"
#include "decode/decode_memory.h"
#include "decode/image.h"
#include "decode/value_check.h"
#include "inspect/read_samples.h"
#include "inspect/sample_values.h"
#include "shard/field_value.h"
#include "shard/npy.h"

namespace millrace {

namespace {

constexpr uint64_t kFewSamples = 16;  // are not worth a thread
constexpr uint64_t kLeastThreadBytes = uint64_t{4} << 20;

// Checks it by the type of the field, else by the end of its name, as a Loader judges a field of that kind.
absl::Status CheckValue(const IndexedField& field, ByteSpan value) {
  const FieldType type = TypeOfEncoding(field.encoding);
  const bool is_file = field.encoding == encoding::kBytes && !field.is_inline;
  const std::string_view ending = is_file ? field.name.substr(field.name.rfind('.') + 1) : std::string_view();
  if (type == FieldType::kText || ending == "txt" || ending == "text") return CheckText(value);
  if (type == FieldType::kJson || ending == "json") return CheckJson(value);
  if (ending == "npy") return CheckNpy(value);
  return absl::OkStatus();
}

// Checks one thread's share of the samples.
class Checker {
 public:
  Checker(const Dataset& dataset, const SampleOrder& order, uint64_t memory_bytes, ImageMemory* images)
      : dataset_(dataset), order_(order), memory_(memory_bytes), decoder_(images, JpegReading::kAll) {
    pixels_.resize(spec_.bytes());
  }

  template <typename Done>
  absl::Status Run(Positions positions, const std::stop_token& stop, const Done& done) {
    uint64_t position = positions.begin;
    return ReadSamples(dataset_, order_, positions, memory_, stop,
                       [&](const IndexedSample& sample, const absl::StatusOr<ByteSpan>& bytes) {
                         Check(order_.At(position++), sample, bytes);
                         done();
                       });
  }

  DecodeReport& report() { return report_; }

 private:
  void Check(uint64_t number, const IndexedSample& sample, const absl::StatusOr<ByteSpan>& bytes) {
    ++report_.samples;
    if (absl::IsResourceExhausted(bytes.status())) {
      ++report_.too_large;
      return;
    }
    const absl::Status status = bytes.ok() ? Decode(sample, *bytes) : bytes.status();
    if (status.ok() || report_.failed++ >= kMaxExamples) return;
    report_.first.push_back({.place = PlaceOf(number, sample), .why = std::string(ToStd(status.message()))});
  }

  absl::Status Decode(const IndexedSample& sample, ByteSpan bytes) {
    for (const IndexedField& field : sample.fields) {
      ASSIGN_OR_RETURN(const ByteSpan value, ValueOf(field, bytes, &scratch_));
      if (!IsImage(field, dataset_.index().image_fields())) {
        RETURN_IF_ERROR(Annotate(CheckValue(field, value), fmt::format("field '{}'", field.name)));
        continue;
      }
      RETURN_IF_ERROR(Annotate(decoder_.Decode(value, spec_, 0, pixels_), fmt::format("field '{}'", field.name)));
      ++report_.images;
      if (decoder_.warnings() > 0) ++report_.odd;
    }
    return absl::OkStatus();
  }

  const Dataset& dataset_;
  const SampleOrder& order_;
  MemoryBudget memory_;
  const ImageSpec spec_{.height = 32, .width = 32};
  ImageDecoder decoder_;
  std::vector<std::byte> pixels_;
  std::string scratch_;
  DecodeReport report_;
};

// This is the error that ended all, not those that it cancelled.
absl::Status FirstError(const std::vector<absl::Status>& statuses) {
  absl::Status cancelled;
  for (const absl::Status& status : statuses) {
    if (!status.ok() && !absl::IsCancelled(status)) return status;
    if (!status.ok()) cancelled = status;
  }
  return cancelled;
}

DecodeReport Merge(std::vector<std::unique_ptr<Checker>>& checkers) {
  DecodeReport all;
  for (const auto& checker : checkers) {
    DecodeReport& one = checker->report();
    all.samples += one.samples;
    all.images += one.images;
    all.failed += one.failed;
    all.odd += one.odd;
    all.too_large += one.too_large;
    std::move(one.first.begin(), one.first.end(), std::back_inserter(all.first));
  }
  all.first.resize(std::min(all.first.size(), kMaxExamples));
  return all;
}

}  // namespace

absl::StatusOr<DecodeReport> CheckDecoding(Runtime& runtime, const Dataset& dataset, uint64_t samples,
                                           const LongTask& task) {
  const uint64_t memory = runtime.memory().limit() / 2;
  // A sample takes at most half of what its thread has.
  const uint64_t thread_bytes = std::max(kLeastThreadBytes, 2 * dataset.index().max_span_bytes());
  const uint64_t most = std::min<uint64_t>(static_cast<uint64_t>(UsableCpus()), memory / thread_bytes);
  const uint64_t threads_wanted = std::clamp<uint64_t>(samples / kFewSamples, 1, std::max<uint64_t>(most, 1));
  const Reservation reserved = runtime.memory().TryReserve(memory);
  if (!reserved) {
    return absl::ResourceExhaustedError(fmt::format("decoding samples needs {} of memory; {} of {} are in use",
                                                    FormatSize(memory), FormatSize(runtime.memory().used()),
                                                    FormatSize(runtime.memory().limit())));
  }
  const SampleOrder order = SampleOrder::Spread(dataset.index().size(), samples);
  std::stop_source stop_all;
  const std::stop_callback on_stop(task.stop, [&stop_all] { stop_all.request_stop(); });
  std::atomic<uint64_t> done{0};
  const auto count = [&] {
    const uint64_t now = ++done;
    if (task.progress) task.progress(now, samples);
  };
  DecodeMemory images(runtime.decode_memory(), runtime.memory().limit());
  std::vector<std::unique_ptr<Checker>> checkers;
  std::vector<absl::Status> statuses(threads_wanted);
  for (uint64_t i = 0; i < threads_wanted; ++i)
    checkers.push_back(std::make_unique<Checker>(dataset, order, memory / threads_wanted, &images));
  std::vector<std::jthread> threads;
  for (uint64_t i = 0; i < threads_wanted; ++i) {
    threads.emplace_back([&, i] {
      const Positions share{.begin = samples * i / threads_wanted, .end = samples * (i + 1) / threads_wanted};
      statuses[i] = checkers[i]->Run(share, stop_all.get_token(), count);
      if (!statuses[i].ok()) stop_all.request_stop();
    });
  }
  threads.clear();  // joins them
  RETURN_IF_ERROR(FirstError(statuses));
  return Merge(checkers);
}

}  // namespace millrace
