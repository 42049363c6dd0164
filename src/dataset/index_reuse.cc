#include "dataset/index_reuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dataset/folder_join.h"
#include "dataset/sample_groups.h"
#include "dataset/token_files.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

// Returns the error of an older index that is damaged in a way that its checksums do not tell.
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
  return !lacks_crcs && !lacks_classes;
}

IndexReuse::IndexReuse(const std::vector<const Index*>& olds, const std::optional<TokenArrays>& tokens, RawReads reads,
                       SameVersion same, const FolderJoin* join)
    : reads_(reads), same_(same ? std::move(same) : HaveSameEtag), join_(join) {
  for (const Index* old : olds) {
    olds_.push_back({.index = old});
    if (old->kind() == DataKind::kTokens) LearnCut(*old, tokens);
  }
}

void IndexReuse::LearnCut(const Index& old, const std::optional<TokenArrays>& tokens) {
  const absl::StatusOr<std::optional<TokenArrays>> were = TokenArraysOf(old);
  cut_alike_ = were.ok() && were->has_value() == tokens.has_value();
  if (!cut_alike_ || !tokens) return;
  const TokenArrays& arrays = **were;
  cut_alike_ = arrays.length == tokens->length && (!tokens->type || tokens->type == arrays.type);
  type_given_ = tokens->type.has_value();
  tokens_type_ = arrays.type;
}

// Returns true if the object's contents follow from the object alone, or from unchanged objects.
bool IndexReuse::MayFind(const IndexedObject& object) const {
  // In a full build, an array without head is an error if its type is not given, unless another array has the type.
  return cut_alike_ && (!tokens_type_ || type_given_ || IsNpy(object.key));
}

absl::StatusOr<bool> IndexReuse::FindIn(Old* old, const IndexedObject& object) const {
  for (; old->next_number < old->index->objects(); ++old->next_number, old->next.reset()) {
    if (!old->next) RETURN_IF_ERROR(CannotReuse(old->index->LookupObject(old->next_number, &old->next.emplace())));
    if (old->next->key >= object.key) break;
  }
  const std::optional<IndexedObject>& then = old->next;
  const bool same = then && then->key == object.key && then->size == object.size && !then->incomplete;
  if (!same || !same_(*then, object)) return false;
  return KnowsEnough(old);
}

absl::StatusOr<bool> IndexReuse::KnowsEnough(Old* old) const {
  if (TellsAll(*old->index, reads_)) return true;
  const bool is_raw = old->index->kind() == DataKind::kRawObjects;
  bool has_class_file = false;
  if (is_raw && old->index->classes_unread()) {
    ASSIGN_OR_RETURN(const RawSample raw, SampleOfObject(join_, *old->next));
    has_class_file = raw.class_of.has_value();
  }
  const auto is_class = [](const NewSampleField& field) { return field.name == kClassField; };
  bool enough = true;
  RETURN_IF_ERROR(CannotReuse(old->index->ScanObject(old->next_number, &old->found_block, [&](const NewSample& sample) {
    const bool class_read = is_raw
                                ? !has_class_file || sample.class_file_bytes
                                : sample.crc32c || std::none_of(sample.fields.begin(), sample.fields.end(), is_class);
    enough = enough && (!reads_.all || sample.crc32c) && (!(reads_.all || reads_.classes) || class_read);
    return absl::OkStatus();
  })));
  return enough;
}

absl::StatusOr<std::optional<IndexReuse::Known>> IndexReuse::Find(DataKind kind, const IndexedObject& object) {
  if (!MayFind(object)) return std::nullopt;
  for (size_t i = 0; i < olds_.size(); ++i) {
    if (olds_[i].index->kind() != kind) continue;
    ASSIGN_OR_RETURN(const bool found, FindIn(&olds_[i], object));
    if (found) return Known{.index = i, .object = olds_[i].next_number};
  }
  return std::nullopt;
}

absl::Status IndexReuse::AddSamples(Known known, IndexWriter* writer) {
  Old& old = olds_[known.index];
  absl::Status added;
  const absl::Status scanned = old.index->ScanObject(
      known.object, &old.block, [&](const NewSample& sample) { return added = writer->AddSample(sample), added; });
  return added.ok() ? CannotReuse(scanned) : added;
}

absl::StatusOr<std::optional<uint32_t>> IndexReuse::CrcOf(Known known) {
  Old& old = olds_[known.index];
  std::optional<uint32_t> crc;
  bool found = false;
  RETURN_IF_ERROR(CannotReuse(old.index->ScanObject(known.object, &old.block, [&](const NewSample& sample) {
    crc = sample.crc32c;
    found = true;
    return absl::OkStatus();
  })));
  if (!found) return CannotReuse(absl::DataLossError("the index has an object without its sample"));
  return crc;
}

}  // namespace millrace
