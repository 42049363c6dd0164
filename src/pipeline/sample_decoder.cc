#include "pipeline/sample_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/rng.h"
#include "dataset/field_of_sample.h"
#include "decode/value_check.h"
#include "shard/npy.h"

namespace millrace {

namespace {

constexpr uint64_t kAugmentDomain = 0x6175676d656e7431;  // "augment1"
constexpr uint64_t kImageDomain = 0x696d616765732d31;    // "images-1"
constexpr uint64_t kPlaceDomain = 0x706c616365732d31;    // "places-1"
constexpr uint64_t kReplaceDomain = 0x7265706c61636531;  // "replace1"
constexpr uint64_t kMaxReplacements = 8;

using Kind = BatchField::Kind;

struct Located {
  const Dataset* dataset = nullptr;
  IndexedSample sample;
  IndexedObject object;
  std::string uri;  // of the object
};

absl::StatusOr<Located> Locate(const Source& source, uint64_t item) {
  Located found;
  found.dataset = source.parts()[source.Find(item).part].dataset;
  RETURN_IF_ERROR(source.Lookup(item, &found.sample));
  RETURN_IF_ERROR(found.dataset->index().LookupObject(found.sample.object, &found.object));
  found.uri = found.dataset->store().Uri(found.dataset->StoreKey(found.object.key));
  return found;
}

// Returns the name of a sample: "s3://bucket/shard.tar, sample 'n01440764/18'".
std::string NameOf(const Source& source, uint64_t item) {
  const absl::StatusOr<Located> found = Locate(source, item);
  return found.ok() ? fmt::format("{}, sample '{}'", found->uri, found->sample.key) : source.uri();
}

// Reports that the bytes of a field are invalid, and so is the sample.
absl::Status InField(const absl::Status& status, std::string_view field) {
  const absl::Status named = Annotate(status, fmt::format("field '{}'", field));
  return absl::IsInvalidArgument(named) ? absl::DataLossError(named.message()) : named;
}

}  // namespace

uint64_t ReplacementOf(const LoaderPlan& plan, uint64_t epoch, uint64_t item, uint64_t attempt) {
  const size_t part = plan.source.Find(item).part;
  const uint64_t key = HashKey(kReplaceDomain, {plan.options.seed, epoch, item, attempt});
  return plan.source.FirstOf(part) + Rng(key).Below(plan.source.parts()[part].size());
}

absl::StatusOr<DecodedRow> SampleDecoder::Decode(const BatchRow& to, const FetchedItem& fetched) {
  if (!fetched.status().ok()) return Damaged(to, fetched.status());
  const uint64_t item = to.replacement != nullptr ? to.replacement->item : to.draw.item;
  const absl::StatusOr<Uint128> digest = DecodeInto(to, item, fetched.span());
  if (!digest.ok()) {
    const bool named = to.replacement != nullptr || !absl::IsDataLoss(digest.status());
    return Damaged(to, named ? Annotate(digest.status(), NameOf(source_, item)) : digest.status());
  }
  if (to.replacement != nullptr && to.counts) return Replaced(to, *digest);
  return DecodedRow{.digest = *digest, .odd_images = odd_images_};
}

absl::StatusOr<DecodedRow> SampleDecoder::Damaged(const BatchRow& to, const absl::Status& damage) const {
  if (!absl::IsDataLoss(damage)) return damage;
  if (plan_.options.bad_samples == BadSamples::kFail) {
    return absl::DataLossError(fmt::format(
        "{}: {}; to continue without damaged samples, have them replaced, or their rows masked (feed: --bad-samples "
        "replace or mask, Python: bad_samples=\"replace\" or \"mask\")",
        NameOf(source_, to.draw.item), ToStd(damage.message())));
  }
  if (plan_.options.bad_samples == BadSamples::kMask) return Masked(to, damage);
  if (to.replacement != nullptr && to.replacement->attempt + 1 == kMaxReplacements) {
    return Annotate(damage,
                    fmt::format("{} samples in a row were damaged, replacements included; is {} an image data set?",
                                kMaxReplacements + 1, source_.uri()));
  }
  return DecodedRow{.damage = damage};
}

absl::StatusOr<DecodedRow> SampleDecoder::Replaced(const BatchRow& to, const Uint128& digest) const {
  ASSIGN_OR_RETURN(QuarantinedSample damaged, Quarantine(to, to.replacement->damage));
  damaged.replacement = entry_.key;
  return DecodedRow{.digest = digest, .quarantined = {std::move(damaged)}};
}

// Makes padding of the row, including everything that was decoded before the damage was found.
absl::StatusOr<DecodedRow> SampleDecoder::Masked(const BatchRow& to, const absl::Status& damage) const {
  to.layout->PadRow(to.slot, to.row);
  for (const PlannedField& field : plan_.fields) {
    if (field.wanted.is_value()) to.values[field.column].rows[to.row].clear();
  }
  to.key->clear();
  if (!to.counts) return DecodedRow{};
  ASSIGN_OR_RETURN(QuarantinedSample damaged, Quarantine(to, damage));
  return DecodedRow{.quarantined = {std::move(damaged)}};
}

absl::StatusOr<QuarantinedSample> SampleDecoder::Quarantine(const BatchRow& to, const absl::Status& damage) const {
  ASSIGN_OR_RETURN(const Located damaged, Locate(source_, to.draw.item));
  std::string reason(ToStd(damage.message()));
  if (reason.starts_with(damaged.uri + ": ")) reason.erase(0, damaged.uri.size() + 2);  // as a store's do
  return QuarantinedSample{NameOf(source_, to.draw.item), std::move(reason), "", to.epoch};
}

absl::StatusOr<const IndexedField*> SampleDecoder::Find(const PlannedField& field) const {
  const auto is_one = [&](const IndexedField& stored) {
    return std::find(field.fields.begin(), field.fields.end(), stored.name) != field.fields.end();
  };
  const auto found = std::find_if(entry_.fields.begin(), entry_.fields.end(), is_one);
  if (found == entry_.fields.end()) {
    const bool image = field.wanted.kind == Kind::kImage;
    return InField(absl::DataLossError(image ? "the sample has no image; remove or move its file, then index again"
                                             : "the sample has no such field"),
                   field.fields.front());
  }
  if (std::find_if(found + 1, entry_.fields.end(), is_one) != entry_.fields.end()) {
    return InField(absl::FailedPreconditionError(
                       "the sample has several images; name the field to decode (feed: --image-field NAME, "
                       "Python: fields={\"image\": millrace.Image(\"NAME\")})"),
                   found->name);
  }
  return &*found;
}

absl::StatusOr<int64_t> SampleDecoder::ClassOf(const PlannedField& field, uint64_t item, int64_t label) const {
  if (field.class_numbers.empty()) return label;
  const std::vector<int64_t>& numbers = field.class_numbers[source_.Find(item).part];
  if (label >= 0 && static_cast<uint64_t>(label) < numbers.size()) return numbers[static_cast<size_t>(label)];
  return absl::DataLossError(fmt::format("{} is no class of its data set", label));
}

absl::Status SampleDecoder::DecodeLabel(const BatchRow& to, uint64_t item, const PlannedField& field, ByteSpan stored) {
  ASSIGN_OR_RETURN(LabelValue value, ParseLabel(stored, field.wanted.label));
  if (field.wanted.is_value()) {
    to.values[field.column].rows[to.row] = std::get<std::string>(std::move(value));
    return absl::OkStatus();
  }
  if (field.wanted.label.kind == LabelSpec::Kind::kFloat) {
    StoreLe(to.At(field.wanted.name).data(), std::bit_cast<uint32_t>(static_cast<float>(std::get<double>(value))));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t label, ClassOf(field, item, std::get<int64_t>(value)));
  StoreLe(to.At(field.wanted.name).data(), label);
  return absl::OkStatus();
}

// Returns the key of a sample's augmentation. In a mix a sample may come several times in an epoch, with another
// augmentation each time. Images of the sample other than "image" are also cropped in another way, by their names. So
// it does not matter which other images are decoded.
uint64_t SampleDecoder::AugmentKey(const BatchRow& to, uint64_t item, std::string_view image) const {
  const uint64_t number = plan_.options.keyed_by_place ? place_key_ : source_.SampleOf(item);
  const uint64_t key = plan_.mix ? HashKey(kAugmentDomain, {plan_.options.seed, to.epoch, item, to.draw.turn})
                                 : HashKey(kAugmentDomain, {plan_.options.seed, to.epoch, number});
  return image == "image" ? key : HashKey(kImageDomain, {key, Xxh3(AsBytes(image))});
}

absl::Status SampleDecoder::DecodeImage(const BatchRow& to, uint64_t item, size_t number, ByteSpan file) {
  const PlannedField& field = plan_.fields[number];
  const ImageSpec& spec = field.wanted.image;
  if (spec.encoded) {
    ASSIGN_OR_RETURN(frames_[number], ReadFrame(file, spec, AugmentKey(to, item, field.wanted.name)));
    to.values[field.column].rows[to.row] = EncodedImage{frames_[number].image, frames_[number].crop, file}.ToValue();
    return absl::OkStatus();
  }
  MutableByteSpan pixels;
  if (plan_.options.digest == DigestOf::kDecoded && to.counts) {
    if (pixels_.size() < plan_.fields.size()) pixels_.resize(plan_.fields.size());
    if (pixels_[number].size() == 0) pixels_[number] = Buffer(spec.pixels());
    pixels = pixels_[number].span();
  }
  const MutableByteSpan out = to.At(field.wanted.name);
  const bool follows = field.leader != PlannedField::kNone;
  RETURN_IF_ERROR(follows ? decoder_.DecodeLike(file, spec, frames_[field.leader], out, pixels)
                          : decoder_.Decode(file, spec, AugmentKey(to, item, field.wanted.name), out, pixels));
  if (decoder_.warnings() > 0) ++odd_images_;
  if (follows) return absl::OkStatus();
  frames_[number] = decoder_.frame();
  return absl::OkStatus();
}

absl::Status SampleDecoder::DecodeBoxes(const BatchRow& to, const PlannedField& field, ByteSpan value) {
  const Frame& frame = frames_[field.leader];
  const ImageSpec& image = plan_.fields[field.leader].wanted.image;
  ASSIGN_OR_RETURN(std::vector<Box> boxes, ParseBoxes(value, field.wanted.boxes, frame.image));
  for (Box& box : boxes) box = ShownBox(box, frame, image.width, image.height);
  to.values[field.column].rows[to.row] = BoxesToNpy(boxes);
  return absl::OkStatus();
}

absl::Status SampleDecoder::DecodeValue(const BatchRow& to, uint64_t item, size_t number, ByteSpan value) {
  const PlannedField& field = plan_.fields[number];
  switch (field.wanted.kind) {
    case Kind::kImage:
      return DecodeImage(to, item, number, value);
    case Kind::kLabel:
      return DecodeLabel(to, item, field, value);
    case Kind::kText:
      RETURN_IF_ERROR(CheckText(value));
      break;
    case Kind::kJson:
      RETURN_IF_ERROR(CheckJson(value));
      break;
    case Kind::kArray:
      RETURN_IF_ERROR(CheckNpy(value));
      break;
    case Kind::kBytes:
      break;
    case Kind::kBoxes:
      return DecodeBoxes(to, field, value);
  }
  to.values[field.column].rows[to.row] = AsText(value);
  return absl::OkStatus();
}

absl::StatusOr<Uint128> SampleDecoder::DecodeInto(const BatchRow& to, uint64_t item, ByteSpan bytes) {
  RETURN_IF_ERROR(source_.Lookup(item, &entry_));
  if (plan_.options.keyed_by_place) {
    RETURN_IF_ERROR(source_.parts()[source_.Find(item).part].index().LookupObject(entry_.object, &object_));
    place_key_ = HashKey(kPlaceDomain, {Xxh3(AsBytes(object_.key)), entry_.span.offset});
  }
  const bool want_digest = plan_.options.digest != DigestOf::kNone && to.counts;
  decoded_.clear();
  odd_images_ = 0;
  for (size_t number = 0; number < plan_.fields.size(); ++number) {
    ASSIGN_OR_RETURN(const IndexedField* stored, Find(plan_.fields[number]));
    ASSIGN_OR_RETURN(const ByteSpan value, ValueOf(*stored, bytes, &scratch_));
    const absl::Status done = DecodeValue(to, item, number, value);
    // A label of another kind than was asked for is no fault of the sample, and no other sample would be better.
    const bool of_other_kind = absl::IsInvalidArgument(done) && plan_.fields[number].wanted.kind == Kind::kLabel;
    if (of_other_kind) return Annotate(done, fmt::format("field '{}'", stored->name));
    if (!done.ok()) return InField(done, stored->name);
    if (want_digest && plan_.options.digest == DigestOf::kDecoded && plan_.fields[number].wanted.kind == Kind::kImage) {
      decoded_.push_back({stored->name, std::as_const(pixels_[number]).span()});
    }
  }
  Uint128 digest{};
  if (want_digest) {
    ASSIGN_OR_RETURN(digest, hasher_.Hash(to.epoch, to.position, entry_, bytes, decoded_));
  }
  to.SetOrigin(plan_.options.numbered ? source_.SampleOf(item) : UINT64_MAX, source_.Find(item).part);
  *to.key = entry_.key;
  return digest;
}

}  // namespace millrace
