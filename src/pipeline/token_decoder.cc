#include "pipeline/token_decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/token_values.h"

namespace millrace {

namespace {

// Of places first .. last-1 of all rows of the slot, as if they were one.
void PadPlaces(const LoaderPlan& plan, const SlotLayout& layout, std::byte* slot, uint64_t first, uint64_t last) {
  const uint64_t count = last - first;
  FillTokens(plan.options.token_type, plan.options.pad_token, slot + layout.tokens + first * layout.token_bytes, count);
  std::memset(slot + layout.token_mask + first, 0, count);
  if (!layout.with_segments) return;
  std::memset(slot + layout.position_ids + first * sizeof(int32_t), 0, count * sizeof(int32_t));
  std::memset(slot + layout.segment_ids + first * sizeof(int32_t), 0, count * sizeof(int32_t));
}

}  // namespace

void PadRows(const LoaderPlan& plan, const SlotLayout& layout, std::byte* slot, uint64_t first) {
  PadPlaces(plan, layout, slot, first * layout.length, layout.batch * layout.length);
  std::memset(slot + layout.rows + first * sizeof(uint64_t), 0, (layout.batch - first) * sizeof(uint64_t));
}

Uint128 HashPiece(Xxh3Stream* stream, const TokenUnit& unit, std::string_view key, ByteSpan stored) {
  stream->Reset();
  for (const uint64_t number : {unit.epoch, unit.position, unit.start, uint64_t{key.size()}})
    stream->UpdateLe64(number);
  stream->Update(AsBytes(key));
  stream->UpdateLe64(unit.piece.offset);
  stream->UpdateLe64(unit.piece.length);
  stream->Update(stored);
  return stream->Digest();
}

std::string TokenDecoder::NameOf(const TokenUnit& to) const {
  const Dataset& dataset = *source_.parts()[source_.Find(to.item).part].dataset;
  IndexedObject object;
  if (!dataset.index().LookupObject(place_.object, &object).ok()) return dataset.uri();
  return fmt::format("{}, sample '{}'", dataset.store().Uri(dataset.StoreKey(object.key)), entry_.key);
}

// What is known of the row without its tokens.
void TokenDecoder::Describe(const TokenUnit& to) {
  const SlotLayout& layout = *to.layout;
  const auto [part, row] = source_.Find(to.item);
  StoreLe(to.slot + layout.samples + to.row * sizeof(uint64_t), place_.sample);
  StoreLe(to.slot + layout.rows + to.row * sizeof(uint64_t), row);
  if (plan_.with_parts()) StoreLe(to.slot + layout.parts + to.row * sizeof(uint64_t), uint64_t{part});
  to.slot[layout.mask + to.row] = std::byte{1};
  *to.key = entry_.key;
}

absl::StatusOr<Uint128> TokenDecoder::DecodeInto(const TokenUnit& to, ByteSpan bytes) {
  const SlotLayout& layout = *to.layout;
  const TokenRows& rows = *source_.rows()[source_.Find(to.item).part];
  const ByteSpan stored = bytes.subspan(place_.skip, place_.bytes);
  const uint64_t first = to.row * layout.length + to.start;
  RETURN_IF_ERROR(ConvertTokens(rows.type(), stored, plan_.options.token_type,
                                to.slot + layout.tokens + first * layout.token_bytes));
  std::memset(to.slot + layout.token_mask + first, 1, to.piece.length);
  for (uint64_t i = 0; layout.with_segments && i < to.piece.length; ++i) {
    StoreLe(to.slot + layout.position_ids + (first + i) * sizeof(int32_t), static_cast<uint32_t>(i));
    StoreLe(to.slot + layout.segment_ids + (first + i) * sizeof(int32_t), to.number + 1);
  }
  if (plan_.options.digest == DigestOf::kNone || !to.counts) return Uint128{};
  return HashPiece(&stream_, to, entry_.key, stored);
}

absl::StatusOr<DecodedRow> TokenDecoder::Decode(const TokenUnit& to, const absl::StatusOr<ByteSpan>& bytes) {
  const SlotLayout& layout = *to.layout;
  const TokenRows& rows = *source_.rows()[source_.Find(to.item).part];
  ASSIGN_OR_RETURN(place_, rows.Find(to.piece, &entry_));
  if (to.number == 0) Describe(to);
  const uint64_t row = to.row * layout.length;
  const uint64_t end = to.start + to.piece.length;
  if (to.last) PadPlaces(plan_, layout, to.slot, row + end, row + layout.length);
  absl::Status damage = bytes.status();
  if (damage.ok()) {
    const absl::StatusOr<Uint128> digest = DecodeInto(to, *bytes);
    if (digest.ok()) return DecodedRow{*digest, std::nullopt};
    damage = digest.status();
  }
  if (!absl::IsDataLoss(damage)) return damage;
  if (plan_.options.bad_samples == BadSamples::kFail) {
    return absl::DataLossError(
        fmt::format("{}: {}; to go on without damaged samples, have them replaced by padding (feed: --bad-samples "
                    "replace, Python: bad_samples=\"replace\")",
                    NameOf(to), ToStd(damage.message())));
  }
  PadPlaces(plan_, layout, to.slot, row + to.start, row + end);
  if (!to.counts) return DecodedRow{};
  return DecodedRow{Uint128{}, QuarantinedSample{NameOf(to), std::string(ToStd(damage.message())), "", to.epoch}};
}

}  // namespace millrace
