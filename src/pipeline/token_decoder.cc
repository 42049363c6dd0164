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
}

Uint128 HashPiece(Xxh3Stream* stream, const BatchRow& row, const PlacedPiece& placed, std::string_view key,
                  ByteSpan stored) {
  stream->Reset();
  for (const uint64_t number : {row.epoch, row.position, uint64_t{placed.start}, uint64_t{key.size()}})
    stream->UpdateLe64(number);
  stream->Update(AsBytes(key));
  stream->UpdateLe64(placed.piece.offset);
  stream->UpdateLe64(placed.piece.length);
  stream->Update(stored);
  return stream->Digest();
}

std::string TokenDecoder::NameOf(const BatchRow& to) const {
  const Dataset& dataset = *source_.parts()[source_.Find(to.draw.item).part].dataset;
  IndexedObject object;
  if (!dataset.index().LookupObject(place_.object, &object).ok()) return dataset.uri();
  return fmt::format("{}, sample '{}'", dataset.store().Uri(dataset.StoreKey(object.key)), entry_.key);
}

// What is known of the row without its tokens.
void TokenDecoder::Describe(const BatchRow& to) {
  const SlotLayout& layout = *to.layout;
  const auto [part, row] = source_.Find(to.draw.item);
  StoreLe(to.slot + layout.samples + to.row * sizeof(uint64_t), place_.sample);
  StoreLe(to.slot + layout.rows + to.row * sizeof(uint64_t), row);
  if (plan_.with_parts()) StoreLe(to.slot + layout.parts + to.row * sizeof(uint64_t), uint64_t{part});
  to.slot[layout.mask + to.row] = std::byte{1};
  *to.key = entry_.key;
}

absl::StatusOr<Uint128> TokenDecoder::DecodePiece(const BatchRow& to, const PlacedPiece& placed, uint32_t number,
                                                  ByteSpan stored) {
  const SlotLayout& layout = *to.layout;
  const TokenRows& rows = *source_.rows()[source_.Find(to.draw.item).part];
  const uint64_t first = to.row * layout.length + placed.start;
  RETURN_IF_ERROR(ConvertTokens(rows.type(), stored, plan_.options.token_type,
                                to.slot + layout.tokens + first * layout.token_bytes));
  std::memset(to.slot + layout.token_mask + first, 1, placed.piece.length);
  for (uint64_t i = 0; layout.with_segments && i < placed.piece.length; ++i) {
    StoreLe(to.slot + layout.position_ids + (first + i) * sizeof(int32_t), static_cast<uint32_t>(i));
    StoreLe(to.slot + layout.segment_ids + (first + i) * sizeof(int32_t), number + 1);
  }
  if (plan_.options.digest == DigestOf::kNone || !to.counts) return Uint128{};
  return HashPiece(&stream_, to, placed, entry_.key, stored);
}

absl::Status TokenDecoder::Damaged(const BatchRow& to, const PlacedPiece& placed, const absl::Status& damage,
                                   DecodedRow* decoded) {
  if (!absl::IsDataLoss(damage)) return damage;
  if (plan_.options.bad_samples == BadSamples::kFail) {
    return absl::DataLossError(
        fmt::format("{}: {}; to go on without damaged samples, have them replaced by padding (feed: --bad-samples "
                    "replace, Python: bad_samples=\"replace\")",
                    NameOf(to), ToStd(damage.message())));
  }
  const uint64_t first = to.row * to.layout->length + placed.start;
  PadPlaces(plan_, *to.layout, to.slot, first, first + placed.piece.length);
  if (to.counts) decoded->quarantined.push_back({NameOf(to), std::string(ToStd(damage.message())), "", to.epoch});
  return absl::OkStatus();
}

absl::StatusOr<DecodedRow> TokenDecoder::Decode(const BatchRow& to, const FetchedItem& fetched) {
  RETURN_IF_ERROR(fetched.status());
  const SlotLayout& layout = *to.layout;
  const TokenRows& rows = *source_.rows()[source_.Find(to.draw.item).part];
  const std::span<const PlacedPiece> pieces = fetched.pieces();
  DecodedRow decoded;
  for (uint32_t number = 0; number < pieces.size(); ++number) {
    const PlacedPiece& placed = pieces[number];
    ASSIGN_OR_RETURN(place_, rows.Find(placed.piece, &entry_));
    if (number == 0) Describe(to);
    const auto damage = std::find_if(fetched.damaged().begin(), fetched.damaged().end(),
                                     [number](const FetchedItem::Damage& each) { return each.piece == number; });
    absl::StatusOr<Uint128> digest =
        damage != fetched.damaged().end()
            ? damage->status
            : DecodePiece(to, placed, number, fetched.span().subspan(placed.start * rows.type().size, place_.bytes));
    if (!digest.ok()) {
      RETURN_IF_ERROR(Damaged(to, placed, digest.status(), &decoded));
      continue;
    }
    decoded.digest += *digest;
    decoded.tokens += placed.piece.length;
  }
  const uint64_t row = to.row * layout.length;
  const PlacedPiece& last = pieces.back();
  PadPlaces(plan_, layout, to.slot, row + last.start + last.piece.length, row + layout.length);
  return decoded;
}

}  // namespace millrace
