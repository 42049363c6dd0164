#include "dataset/part_collector.h"

#include <fmt/format.h>

#include <utility>

#include "base/size.h"
#include "dataset/string_writer.h"

namespace millrace {

namespace {
constexpr uint64_t kMemoryStep = 1 << 20;
}  // namespace

void PartCollector::Begin() {
  bytes_.clear();
  writer_ = std::make_unique<IndexWriter>(kind_, std::make_unique<StringWriter>(&bytes_));
  objects_ = 0;
  object_bytes_ = 0;
}

absl::Status PartCollector::Drop() {
  const size_t held = std::exchange(bytes_, {}).size();
  writer_.reset();
  reservation_ = {};
  dropped_ = true;
  if (!required_) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "a part of the index of {} and more does not fit into the memory, of which {} of {} are in use: raise "
      "the limit",
      FormatSize(held), FormatSize(memory_.used()), FormatSize(memory_.limit())));
}

absl::Status PartCollector::AddSample(const NewSample& sample) {
  if (dropped_) return absl::OkStatus();
  if (writer_ == nullptr) Begin();
  // Counts the string with its room to grow, and the bytes that the writer has not written to it yet.
  if (2 * bytes_.size() + kMemoryStep > reservation_.bytes() &&
      !memory_.TryExtend(&reservation_, bytes_.size() + 2 * kMemoryStep)) {
    return Drop();
  }
  return writer_->AddSample(sample);
}

absl::Status PartCollector::AddObject(const IndexedObject& object, uint64_t part_bytes) {
  if (std::exchange(dropped_, false)) return absl::OkStatus();
  if (writer_ == nullptr) Begin();  // there was no sample in it
  RETURN_IF_ERROR(writer_->AddObject(object));
  ++objects_;
  object_bytes_ += object.size;
  return object_bytes_ < part_bytes ? absl::OkStatus() : Finish();
}

absl::Status PartCollector::Finish() {
  if (writer_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(writer_->Finish().status());
  writer_.reset();
  RETURN_IF_ERROR(keep_(bytes_));
  bytes_ = {};
  reservation_ = {};
  kept_objects_ += objects_;
  return absl::OkStatus();
}

}  // namespace millrace
