#include "dataset/index_reuse.h"

#include <fmt/format.h>

#include <utility>

#include "dataset/sample_groups.h"
#include "dataset/token_files.h"

namespace millrace {

namespace {

// Of an older index that is damaged in a way that its checksums do not tell.
absl::Status CannotReuse(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::DataLossError(
      fmt::format("{}; it cannot be brought up to date: read everything by --full", ToStd(status.message())));
}

// Without an ETag nothing says that it is the same object.
bool HaveSameEtag(const IndexedObject& then, const IndexedObject& now) {
  return then.etag == now.etag && !now.etag.empty();
}

}  // namespace

bool TellsAll(const Index& index, RawReads reads) {
  const bool lacks_crcs = reads.all && index.samples_without_crc() > 0;
  const bool lacks_classes = (reads.all || reads.classes) && index.classes_unread();
  return index.kind() != DataKind::kRawObjects || (!lacks_crcs && !lacks_classes);
}

IndexReuse::IndexReuse(const Index& old, const std::optional<TokenArrays>& tokens, RawReads reads, SameVersion same)
    : old_(old), reads_(reads), same_(same ? std::move(same) : HaveSameEtag) {
  if (old.kind() != DataKind::kTokens) return;
  const absl::StatusOr<std::optional<TokenArrays>> were = TokenArraysOf(old);
  cut_alike_ = were.ok() && were->has_value() == tokens.has_value();
  if (!cut_alike_ || !tokens) return;
  const TokenArrays& arrays = **were;
  cut_alike_ = arrays.length == tokens->length && (!tokens->type || tokens->type == arrays.type);
  type_given_ = tokens->type.has_value();
  tokens_type_ = arrays.type;
}

// Whether what the object holds is told by it alone, or by what has not changed.
bool IndexReuse::MayFind(const IndexedObject& object) const {
  // An array without head, of a type that is not given, is an error in a full build, unless another told the type.
  return cut_alike_ && (!tokens_type_ || type_given_ || IsNpy(object.key));
}

absl::StatusOr<std::optional<uint32_t>> IndexReuse::Find(DataKind kind, const IndexedObject& object) {
  if (kind != old_.kind() || !MayFind(object)) return std::nullopt;
  for (; next_number_ < old_.objects(); ++next_number_, next_.reset()) {
    if (!next_) RETURN_IF_ERROR(CannotReuse(old_.LookupObject(next_number_, &next_.emplace())));
    if (next_->key >= object.key) break;
  }
  const bool same = next_ && next_->key == object.key && next_->size == object.size && !next_->incomplete;
  if (!same || !same_(*next_, object)) return std::nullopt;
  ASSIGN_OR_RETURN(const bool enough, KnowsEnough(next_number_));
  if (!enough) return std::nullopt;
  return next_number_;
}

absl::StatusOr<bool> IndexReuse::KnowsEnough(uint32_t number) {
  if (TellsAll(old_, reads_)) return true;
  ASSIGN_OR_RETURN(const RawSample raw, RawSampleOf(*next_));
  bool enough = true;
  RETURN_IF_ERROR(CannotReuse(old_.ScanObject(number, &found_block_, [&](const NewSample& sample) {
    const bool class_read = !raw.class_of || sample.class_file_bytes;
    enough = (!reads_.all || sample.crc32c) && (!(reads_.all || reads_.classes) || class_read);
    return absl::OkStatus();
  })));
  return enough;
}

absl::Status IndexReuse::AddSamples(uint32_t number, IndexWriter* writer) {
  absl::Status added;
  const absl::Status scanned = old_.ScanObject(
      number, &block_, [&](const NewSample& sample) { return added = writer->AddSample(sample), added; });
  return added.ok() ? CannotReuse(scanned) : added;
}

absl::StatusOr<std::optional<uint32_t>> IndexReuse::CrcOf(uint32_t number) {
  std::optional<uint32_t> crc;
  bool found = false;
  RETURN_IF_ERROR(CannotReuse(old_.ScanObject(number, &block_, [&](const NewSample& sample) {
    crc = sample.crc32c;
    found = true;
    return absl::OkStatus();
  })));
  if (!found) return CannotReuse(absl::DataLossError("the index has an object without its sample"));
  return crc;
}

}  // namespace millrace
