#include "pipeline/token_decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "shard/token_values.h"

namespace millrace {

namespace {

// Makes padding of tokens first .. last-1 of the row.
void PadTokens(const BatchRow& to, uint64_t first, uint64_t last) {
  const uint64_t row = to.row * to.layout->length();
  for (const char* const name : {"tokens", "token_mask", "position_ids", "segment_ids"}) {
    to.layout->Pad(to.slot, name, row + first, row + last);
  }
}

}  // namespace

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

// Writes the facts about the row that are known without its tokens.
void TokenDecoder::Describe(const BatchRow& to) {
  const auto [part, row] = source_.Find(to.draw.item);
  StoreLe(to.At("row").data(), row);
  to.SetOrigin(place_.sample, part);
  *to.key = entry_.key;
}

absl::StatusOr<Uint128> TokenDecoder::DecodePiece(const BatchRow& to, const PlacedPiece& placed, uint32_t number,
                                                  ByteSpan stored) {
  const TokenRows& rows = *source_.rows()[source_.Find(to.draw.item).part];
  const uint64_t first = placed.start;
  const uint64_t length = placed.piece.length;
  const TokenType type = plan_.options.token_type;
  RETURN_IF_ERROR(ConvertTokens(rows.type(), stored, type, to.At("tokens").data() + first * TokenBytes(type)));
  std::memset(to.At("token_mask").data() + first, 1, length);
  if (const MutableByteSpan positions = to.At("position_ids"); !positions.empty()) {
    const MutableByteSpan segments = to.At("segment_ids");
    for (uint64_t i = 0; i < length; ++i) {
      StoreLe(positions.data() + (first + i) * sizeof(int32_t), static_cast<uint32_t>(i));
      StoreLe(segments.data() + (first + i) * sizeof(int32_t), number + 1);
    }
  }
  if (plan_.options.digest == DigestOf::kNone || !to.counts) return Uint128{};
  return HashPiece(&stream_, to, placed, entry_.key, stored);
}

absl::Status TokenDecoder::Damaged(const BatchRow& to, const PlacedPiece& placed, const absl::Status& damage,
                                   DecodedRow* decoded) {
  if (!absl::IsDataLoss(damage)) return damage;
  if (plan_.options.bad_samples == BadSamples::kFail) {
    return absl::DataLossError(
        fmt::format("{}: {}; to continue without damaged samples, have them replaced by padding (feed: --bad-samples "
                    "replace, Python: bad_samples=\"replace\")",
                    NameOf(to), ToStd(damage.message())));
  }
  PadTokens(to, placed.start, placed.start + placed.piece.length);
  if (to.counts) decoded->quarantined.push_back({NameOf(to), std::string(ToStd(damage.message())), "", to.epoch});
  return absl::OkStatus();
}

absl::StatusOr<DecodedRow> TokenDecoder::Decode(const BatchRow& to, const FetchedItem& fetched) {
  RETURN_IF_ERROR(fetched.status());
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
  PadTokens(to, pieces.back().start + pieces.back().piece.length, to.layout->length());
  return decoded;
}

}  // namespace millrace
