#include "pipeline/sample_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/rng.h"
#include "dataset/field_of_sample.h"

namespace millrace {

namespace {

constexpr uint64_t kAugmentDomain = 0x6175676d656e7431;  // "augment1"
constexpr uint64_t kReplaceDomain = 0x7265706c61636531;  // "replace1"
constexpr uint64_t kMaxReplacements = 8;

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

// "s3://bucket/shard.tar, sample 'n01440764/18'"
std::string NameOf(const Source& source, uint64_t item) {
  const absl::StatusOr<Located> found = Locate(source, item);
  return found.ok() ? fmt::format("{}, sample '{}'", found->uri, found->sample.key) : source.uri();
}

// What the bytes of a field mean is wrong: so the sample is.
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
  return DecodedRow{.digest = *digest};
}

absl::StatusOr<DecodedRow> SampleDecoder::Damaged(const BatchRow& to, const absl::Status& damage) const {
  if (!absl::IsDataLoss(damage)) return damage;
  if (plan_.options.bad_samples == BadSamples::kFail) {
    return absl::DataLossError(fmt::format(
        "{}: {}; to go on without damaged samples, have them replaced (feed: --bad-samples replace, Python: "
        "bad_samples=\"replace\")",
        NameOf(source_, to.draw.item), ToStd(damage.message())));
  }
  if (to.replacement != nullptr && to.replacement->attempt + 1 == kMaxReplacements) {
    return Annotate(damage,
                    fmt::format("{} samples in a row were damaged, replacements included; is {} an image data set?",
                                kMaxReplacements + 1, source_.uri()));
  }
  return DecodedRow{.damage = damage};
}

absl::StatusOr<DecodedRow> SampleDecoder::Replaced(const BatchRow& to, const Uint128& digest) const {
  ASSIGN_OR_RETURN(const Located damaged, Locate(source_, to.draw.item));
  std::string reason(ToStd(to.replacement->damage.message()));
  if (reason.starts_with(damaged.uri + ": ")) reason.erase(0, damaged.uri.size() + 2);  // as a store's do
  return DecodedRow{.digest = digest,
                    .quarantined = {{NameOf(source_, to.draw.item), std::move(reason), entry_.key, to.epoch}}};
}

absl::StatusOr<const IndexedField*> SampleDecoder::FindImage() const {
  const auto is_image = [&](const IndexedField& field) {
    return std::find(plan_.image_fields.begin(), plan_.image_fields.end(), field.name) != plan_.image_fields.end();
  };
  const auto found = std::find_if(entry_.fields.begin(), entry_.fields.end(), is_image);
  if (found == entry_.fields.end()) {
    return InField(absl::DataLossError("the sample has no image; remove or move its file, then index again"),
                   plan_.image_fields.front());
  }
  if (std::find_if(found + 1, entry_.fields.end(), is_image) != entry_.fields.end()) {
    return InField(absl::FailedPreconditionError("the sample has several images; name the field to decode"),
                   found->name);
  }
  return &*found;
}

absl::Status SampleDecoder::DecodeLabel(const BatchRow& to, uint64_t item, ByteSpan bytes) {
  const std::string& name = plan_.label->field;
  const auto field =
      std::find_if(entry_.fields.begin(), entry_.fields.end(), [&](const auto& f) { return f.name == name; });
  if (field == entry_.fields.end()) return InField(absl::DataLossError("the sample has no such field"), name);
  ASSIGN_OR_RETURN(const ByteSpan stored, ValueOf(*field, bytes, &scratch_));
  absl::StatusOr<LabelValue> value = ParseLabel(stored, plan_.label->spec);
  if (!value.ok()) return InField(value.status(), name);
  if (plan_.text_labels) {
    *to.text = std::get<std::string>(*std::move(value));
  } else {
    auto label = std::get<int64_t>(*value);
    if (!plan_.class_numbers.empty()) {
      const std::vector<int64_t>& numbers = plan_.class_numbers[source_.Find(item).part];
      if (label < 0 || static_cast<uint64_t>(label) >= numbers.size()) {
        return InField(absl::DataLossError(fmt::format("{} is no class of its data set", label)), name);
      }
      label = numbers[static_cast<size_t>(label)];
    }
    StoreLe(to.At("label").data(), label);
  }
  return absl::OkStatus();
}

// In a mix a sample may come several times in an epoch, each time otherwise.
uint64_t SampleDecoder::AugmentKey(const BatchRow& to, uint64_t item) const {
  if (!plan_.mix) return HashKey(kAugmentDomain, {plan_.options.seed, to.epoch, source_.SampleOf(item)});
  return HashKey(kAugmentDomain, {plan_.options.seed, to.epoch, item, to.draw.turn});
}

// Where the digest wants pixels: the field that they are of, which are in pixels_.
absl::StatusOr<std::string_view> SampleDecoder::DecodeImage(const BatchRow& to, uint64_t item, ByteSpan bytes) {
  if (plan_.image_fields.empty()) return std::string_view();
  ASSIGN_OR_RETURN(const IndexedField* image, FindImage());
  const bool want_pixels = plan_.options.digest == DigestOf::kDecoded && to.counts;
  if (want_pixels && pixels_.size() == 0) pixels_ = Buffer(plan_.options.image.pixels());
  ASSIGN_OR_RETURN(const ByteSpan file, ValueOf(*image, bytes, &scratch_));
  const absl::Status decoded = decoder_.Decode(file, plan_.options.image, AugmentKey(to, item), to.At("image"),
                                               want_pixels ? pixels_.span() : MutableByteSpan());
  if (!decoded.ok()) return InField(decoded, image->name);
  return want_pixels ? image->name : std::string_view();
}

absl::StatusOr<Uint128> SampleDecoder::DecodeInto(const BatchRow& to, uint64_t item, ByteSpan bytes) {
  RETURN_IF_ERROR(source_.Lookup(item, &entry_));
  const bool want_digest = plan_.options.digest != DigestOf::kNone && to.counts;
  ASSIGN_OR_RETURN(const std::string_view decoded_field, DecodeImage(to, item, bytes));
  if (plan_.label) RETURN_IF_ERROR(DecodeLabel(to, item, bytes));
  Uint128 digest{};
  if (want_digest) {
    ASSIGN_OR_RETURN(digest,
                     hasher_.Hash(to.epoch, to.position, entry_, bytes, decoded_field, std::as_const(pixels_).span()));
  }
  to.SetOrigin(source_.SampleOf(item), source_.Find(item).part);
  *to.key = entry_.key;
  return digest;
}

}  // namespace millrace
