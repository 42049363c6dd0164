#include "pipeline/image_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/counted.h"
#include "dataset/dataset_warnings.h"
#include "pipeline/loader.h"
#include "shard/data_kind.h"
#include "shard/sample_name.h"
#include "store/joined_objects.h"

namespace millrace {

namespace {

constexpr uint64_t kMostOfImage = 20;  // samples without an image for each one with an image
constexpr size_t kShownKeys = 5;

bool HasOneOf(const IndexedSample& entry, const std::vector<std::string>& fields) {
  return std::any_of(entry.fields.begin(), entry.fields.end(), [&](const IndexedField& field) {
    return std::find(fields.begin(), fields.end(), field.name) != fields.end();
  });
}

// Returns true for data sets of which samples may be left out. The samples of a manifest stay, since it names them.
bool MayHoldOthers(const Dataset& dataset) {
  const Index& index = dataset.index();
  return index.kind() == DataKind::kRawObjects && !dataset.is_manifest() && !index.image_fields().empty() &&
         index.SomeLack(index.image_fields());
}

// Represents a kind and its number, such as "5 json".
struct CountedKind {
  std::string name;
  uint64_t samples = 0;
};

struct Other {
  uint64_t sample = 0;
  uint64_t bytes = 0;
  size_t kind = 0;  // among OthersOfDataset::kinds
  std::optional<uint32_t> label;
};

// The samples of a data set that are beside its images.
struct OthersOfDataset {
  std::vector<Other> left_out;  // ascending
  std::vector<std::string> kinds;
  std::vector<uint64_t> unlabelled;  // ascending; of those that stay
};

class OthersFinder {
 public:
  OthersFinder(const Dataset& dataset, const WantedFields& wanted) : dataset_(dataset), wanted_(wanted) {}

  absl::StatusOr<OthersOfDataset> Find() {
    const Index& index = dataset_.index();
    const bool by_labels = dataset_.labels() != nullptr;
    RETURN_IF_ERROR(index.Scan(0, index.size(), [&](uint64_t sample, const IndexedSample& entry) {
      if ((by_labels && entry.in_labels_file) || !IsBesideImages(index, entry)) return;
      if (wanted_.images && !HasOneOf(entry, wanted_.names)) {
        found_.left_out.push_back({sample, entry.span.length, KindOf(entry), entry.label});
      } else if (by_labels) {
        found_.unlabelled.push_back(sample);
      }
    }));
    return std::move(found_);
  }

 private:
  size_t KindOf(const IndexedSample& entry) {
    std::string_view name;
    for (const IndexedField& field : entry.fields) {
      if (!field.is_inline && name.empty()) name = field.name;
    }
    const auto [known, is_new] = numbers_.try_emplace(std::string(name), found_.kinds.size());
    if (is_new) found_.kinds.emplace_back(name);
    return known->second;
  }

  const Dataset& dataset_;
  const WantedFields& wanted_;
  OthersOfDataset found_;
  std::map<std::string, size_t, std::less<>> numbers_;
};

// Returns a pattern that matches the images of a data set, as their names are written.
absl::StatusOr<std::string> PatternOfImages(const Dataset& dataset) {
  const Index& index = dataset.index();
  std::set<std::string> endings;
  absl::Status status;
  RETURN_IF_ERROR(index.Scan(0, index.size(), [&](uint64_t, const IndexedSample& entry) {
    if (!status.ok() || !HasOneOf(entry, index.image_fields())) return;
    IndexedObject object;
    status = index.LookupObject(entry.object, &object);
    const absl::StatusOr<std::vector<ObjectInfo>> objects = SplitJoined(object.key, "");
    for (const ObjectInfo& one : objects.ok() ? *objects : std::vector<ObjectInfo>()) {
      const std::optional<SampleName> name = SplitObjectName(one.key);
      if (name && IsImageField(name->field)) endings.insert(one.key.substr(one.key.rfind('.') + 1));
    }
  }));
  RETURN_IF_ERROR(status);
  const DatasetPlace& place = dataset.place();
  return place.store->Uri(place.Key(endings.size() == 1 ? "**/*." + *endings.begin()
                                                        : fmt::format("**/*.{{{}}}", fmt::join(endings, ","))));
}

// The samples that the parts of a source have of one data set.
class PartsOfDataset {
 public:
  PartsOfDataset(const Dataset& dataset, const OthersOfDataset& others) : dataset_(dataset), others_(others) {}

  void Add(const Subset& part, size_t number) {
    Part& own = parts_.emplace_back();
    own.number = number;
    for (const Other& other : others_.left_out) {
      if (part.selection && !part.selection->Contains(other.sample)) continue;
      own.left_out.push_back(&other);
    }
    for (const uint64_t sample : others_.unlabelled) {
      if (part.selection && !part.selection->Contains(sample)) continue;
      if (unlabelled_++ < kShownKeys) unlabelled_first_.push_back(sample);
    }
    images_ += part.size() - own.left_out.size();
    if (own.left_out.size() == part.size()) own.left_out.clear();  // a part without images is refused elsewhere
    left_out_ += own.left_out.size();
  }

  absl::Status Judge(const Source& source, const WantedFields& wanted, ImageSamples* out) const {
    if (unlabelled_ > 0) RETURN_IF_ERROR(SayUnlabelled(source, out));
    if (left_out_ == 0) return absl::OkStatus();
    if (left_out_ > kMostOfImage * images_) return SayOutnumbered(source, out);
    return wanted.classes && dataset_.labels() == nullptr ? SayEmptyClass(out) : absl::OkStatus();
  }

  // Leaves out samples, with one sentence for each of the parts.
  absl::Status LeaveOut(const Source& source, std::vector<Subset>* parts, ImageSamples* out) const {
    for (const Part& own : parts_) {
      if (own.left_out.empty()) continue;
      Subset& part = (*parts)[own.number];
      ASSIGN_OR_RETURN(std::string sentence, Sentence(part, own));
      if (source.parts().size() > 1) sentence = fmt::format("{}: {}", dataset_.uri(), sentence);
      out->left_out.push_back({own.left_out.size(), std::move(sentence)});
      part = Without(part, own);
    }
    return absl::OkStatus();
  }

 private:
  struct Part {
    size_t number = 0;
    std::vector<const Other*> left_out;
  };

  absl::StatusOr<std::string> Name(uint64_t sample) const {
    IndexedSample entry;
    RETURN_IF_ERROR(dataset_.index().Lookup(sample, &entry));
    return entry.key;
  }

  // Returns the kinds: "3 json, 1 txt, such as 'a' (json)".
  absl::StatusOr<std::string> Kinds(const Part& own) const {
    constexpr size_t kShownKinds = 8;
    std::vector<CountedKind> kinds;
    for (const std::string& name : others_.kinds) kinds.push_back({name, 0});
    for (const Other* other : own.left_out) ++kinds[other->kind].samples;
    std::erase_if(kinds, [](const CountedKind& kind) { return kind.samples == 0; });
    std::stable_sort(kinds.begin(), kinds.end(), [](const CountedKind& a, const CountedKind& b) {
      return a.samples != b.samples ? a.samples > b.samples : a.name < b.name;
    });
    std::vector<std::string> shown;
    for (const CountedKind& kind : kinds) {
      if (shown.size() < kShownKinds) shown.push_back(fmt::format("{} {}", kind.samples, kind.name));
    }
    ASSIGN_OR_RETURN(const std::string first, Name(own.left_out.front()->sample));
    return fmt::format("{}{}, such as '{}' ({})", fmt::join(shown, ", "), kinds.size() > shown.size() ? ", ..." : "",
                       first, others_.kinds[own.left_out.front()->kind]);
  }

  absl::StatusOr<std::string> Sentence(const Subset& part, const Part& own) const {
    ASSIGN_OR_RETURN(const std::string kinds, Kinds(own));
    return fmt::format("{} of {} without an image {} left out: {}; to keep those of a kind, name it as a field",
                       own.left_out.size(), Counted(part.size(), "sample"), own.left_out.size() == 1 ? "is" : "are",
                       kinds);
  }

  absl::Status SayUnlabelled(const Source& source, ImageSamples* out) const {
    std::vector<std::string> keys;
    for (const uint64_t sample : unlabelled_first_) {
      ASSIGN_OR_RETURN(std::string key, Name(sample));
      keys.push_back(std::move(key));
    }
    uint64_t samples = 0;
    for (const Part& own : parts_) samples += source.parts()[own.number].size();
    out->unlabelled.Update(NoLabels(dataset_, unlabelled_, samples, keys));
    return absl::OkStatus();
  }

  absl::Status SayOutnumbered(const Source& source, ImageSamples* out) const {
    const auto most = std::max_element(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
      return a.left_out.size() < b.left_out.size();
    });
    ASSIGN_OR_RETURN(const std::string kinds, Kinds(*most));
    ASSIGN_OR_RETURN(const std::string pattern, PatternOfImages(dataset_));
    const std::string of = source.parts().size() > 1 ? fmt::format(" of {}", dataset_.uri()) : "";
    out->outnumbered.Update(absl::InvalidArgumentError(fmt::format(
        "{} of {}{} have no image: {}; so they may be the data (more than {} for each image): name the fields "
        "to read (fields={{...}}), or give a pattern of images, such as '{}'",
        left_out_, Counted(left_out_ + images_, "sample"), of, kinds, kMostOfImage, pattern)));
    return absl::OkStatus();
  }

  absl::Status SayEmptyClass(ImageSamples* out) const {
    const std::vector<ClassCount>& classes = dataset_.index().class_counts();
    if (dataset_.index().class_names().empty()) return absl::OkStatus();
    std::vector<uint64_t> others(classes.size());
    for (const Other& other : others_.left_out) {
      if (other.label) ++others[*other.label];
    }
    for (const Part& own : parts_) {
      for (const Other* other : own.left_out) {
        if (!other->label || others[*other->label] < classes[*other->label].samples) continue;
        ASSIGN_OR_RETURN(const std::string pattern, PatternOfImages(dataset_));
        out->empty_classes.Update(absl::InvalidArgumentError(fmt::format(
            "the class folder '{}' of {} has no image; leave it out by a pattern that takes the images, such as '{}', "
            "or leave the classes out of the fields",
            classes[*other->label].name, dataset_.uri(), pattern)));
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  static Subset Without(const Subset& part, const Part& own) {
    constexpr size_t kAtOnce = 1024;
    std::array<uint64_t, kAtOnce> members{};
    Selection::Builder kept(part.index().size());
    auto next = own.left_out.begin();
    for (uint64_t rank = 0; rank < part.size(); rank += kAtOnce) {
      const std::span<uint64_t> some(members.data(), std::min<uint64_t>(kAtOnce, part.size() - rank));
      if (part.selection) part.selection->Read(rank, some);
      for (size_t i = 0; i < some.size(); ++i) {
        const uint64_t sample = part.selection ? some[i] : rank + i;
        if (next != own.left_out.end() && (*next)->sample == sample) {
          ++next;
        } else {
          kept.Add(sample);
        }
      }
    }
    uint64_t bytes = 0;
    for (const Other* other : own.left_out) bytes += other->bytes;
    Subset images(*part.dataset, std::move(kept).Finish(), part.total_bytes - std::min(bytes, part.total_bytes));
    images.class_name = part.class_name;
    return images;
  }

  const Dataset& dataset_;
  const OthersOfDataset& others_;
  std::vector<Part> parts_;
  uint64_t left_out_ = 0;
  uint64_t images_ = 0;
  uint64_t unlabelled_ = 0;
  std::vector<uint64_t> unlabelled_first_;
};

absl::StatusOr<ImageSamples> FindImageSamples(const Source& source, const WantedFields& wanted) {
  ImageSamples found{.source = source, .left_out = {}, .outnumbered = {}, .empty_classes = {}, .unlabelled = {}};
  std::vector<Subset> parts = source.parts();
  std::set<const Dataset*> seen;
  for (const Subset& first : source.parts()) {
    const Dataset& dataset = *first.dataset;
    const bool some_unlabelled = dataset.labels() != nullptr && dataset.index().SomeLackLabels();
    if (!seen.insert(&dataset).second || !MayHoldOthers(dataset) || (!wanted.images && !some_unlabelled)) continue;
    ASSIGN_OR_RETURN(const OthersOfDataset others, OthersFinder(dataset, wanted).Find());
    PartsOfDataset own(dataset, others);
    for (size_t number = 0; number < parts.size(); ++number) {
      if (source.parts()[number].dataset == &dataset) own.Add(source.parts()[number], number);
    }
    RETURN_IF_ERROR(own.Judge(source, wanted, &found));
    if (found.outnumbered.ok()) RETURN_IF_ERROR(own.LeaveOut(source, &parts, &found));
  }
  if (!found.outnumbered.ok()) found.left_out.clear();
  if (!found.left_out.empty()) found.source = Source(std::move(parts));
  return found;
}

}  // namespace

WantedFields WantedFields::Of(const LoaderOptions& options) {
  using Kind = BatchField::Kind;
  WantedFields wanted;
  const std::vector<BatchField>& fields = options.fields;
  const auto asks = [&](Kind kind, std::string_view name) {
    return std::any_of(fields.begin(), fields.end(), [&](const BatchField& field) {
      return field.kind == kind && (name.empty() || field.field == name);
    });
  };
  wanted.images = fields.empty() || asks(Kind::kImage, "");
  wanted.classes =
      fields.empty() ? !options.label || options.label->field == kClassField : asks(Kind::kLabel, kClassField);
  for (const BatchField& field : fields) wanted.names.push_back(field.field);
  wanted.names.push_back(options.image_field);
  if (options.label) wanted.names.push_back(options.label->field);
  // The class of a raw object is its folder.
  std::erase_if(wanted.names, [](const std::string& name) { return name.empty() || name == kClassField; });
  return wanted;
}

absl::Status ImageSamples::refusal() const {
  absl::Status first = outnumbered;
  first.Update(empty_classes);
  first.Update(unlabelled);
  return first;
}

// Represents the samples that were found last.
struct Source::Found {
  std::mutex mutex;
  bool is_there = false;
  WantedFields wanted;
  std::optional<std::vector<Subset>> parts;  // absent: all samples
  std::vector<ImageSamples::LeftOut> left_out;
  absl::Status outnumbered;
  absl::Status empty_classes;
  absl::Status unlabelled;
};

std::shared_ptr<Source::Found> Source::NothingFound() {
  return std::make_shared<Found>();
}

absl::StatusOr<ImageSamples> OnlyImageSamples(const Source& source, const WantedFields& wanted) {
  if (source.tokens() != nullptr) {
    return ImageSamples{.source = source, .left_out = {}, .outnumbered = {}, .empty_classes = {}, .unlabelled = {}};
  }
  Source::Found& last = *source.found_;
  const std::lock_guard lock(last.mutex);
  const bool same = last.is_there && last.wanted.images == wanted.images && last.wanted.classes == wanted.classes &&
                    last.wanted.names == wanted.names;
  if (!same) {
    ASSIGN_OR_RETURN(const ImageSamples found, FindImageSamples(source, wanted));
    last.wanted = wanted;
    last.parts.reset();
    if (!found.left_out.empty()) last.parts = found.source.parts();
    last.left_out = found.left_out;
    last.outnumbered = found.outnumbered;
    last.empty_classes = found.empty_classes;
    last.unlabelled = found.unlabelled;
    last.is_there = true;
  }
  return ImageSamples{.source = last.parts ? Source(*last.parts) : source,
                      .left_out = last.left_out,
                      .outnumbered = last.outnumbered,
                      .empty_classes = last.empty_classes,
                      .unlabelled = last.unlabelled};
}

bool IsBesideImages(const Index& index, const IndexedSample& entry) {
  return index.kind() == DataKind::kRawObjects && !index.image_fields().empty() &&
         std::none_of(entry.fields.begin(), entry.fields.end(), [&](const IndexedField& field) {
           return IsPhotoFormat(field.name) || std::find(index.image_fields().begin(), index.image_fields().end(),
                                                         field.name) != index.image_fields().end();
         });
}

}  // namespace millrace
