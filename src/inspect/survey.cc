#include "inspect/survey.h"

#include <algorithm>
#include <utility>

#include "shard/sample_name.h"

namespace millrace {

namespace {

constexpr uint64_t kNoObject = UINT64_MAX;

// Has fields of which a sample needs only one.
struct Slot {
  std::set<std::string> names;
  uint64_t samples = 0;       // that have one of them
  uint64_t last = kNoObject;  // the latest of these
};

// "left.png" and "left.jpg" are one slot, "left.*".
std::string SlotName(std::string_view field) {
  if (!IsImageField(field)) return std::string(field);
  const size_t dot = field.rfind('.');
  return std::string(field.substr(0, dot == std::string_view::npos ? 0 : dot + 1)) + '*';
}

class Surveyor {
 public:
  Surveyor(const Index& index, const LongTask& task) : index_(index), task_(task) {}

  absl::StatusOr<Survey> Run() {
    RETURN_IF_ERROR(WalkIndex(index_, index_.size(), task_,
                              [this](uint64_t number, const IndexedSample& sample) { Count(number, sample); }));
    ChooseSuspects();
    if (!usual_.empty() || survey_.sizes.max() > survey_.huge_above) {
      RETURN_IF_ERROR(WalkIndex(index_, index_.size(), task_,
                                [this](uint64_t number, const IndexedSample& sample) { Suspect(number, sample); }));
    }
    RETURN_IF_ERROR(ListIncomplete());
    std::erase_if(survey_.lacking, [](const LackingField& one) { return one.samples.count == 0; });
    return std::move(survey_);
  }

 private:
  struct Field {
    FieldCounts* counts = nullptr;
    Slot* slot = nullptr;
  };

  Field& Find(std::string_view name) {
    Field& field = fields_[name];
    if (field.counts == nullptr) {
      field = {.counts = &survey_.fields[name], .slot = &slots_[SlotName(name)]};
      field.slot->names.emplace(name);
    }
    return field;
  }

  void Count(uint64_t number, const IndexedSample& sample) {
    survey_.sizes.Add(sample.span.length);
    survey_.keys_ascend = survey_.keys_ascend && (number == 0 || last_key_ < sample.key);
    last_key_ = sample.key;
    const bool has_bytes = std::any_of(sample.fields.begin(), sample.fields.end(),
                                       [](const IndexedField& field) { return !field.is_inline && field.length > 0; });
    if (!has_bytes) survey_.empty.Add(number, sample);
    for (const IndexedField& stored : sample.fields) {
      const Field& field = Find(stored.name);
      ++field.counts->samples;
      field.counts->bytes += stored.length;
      field.counts->types.insert(TypeOfEncoding(stored.encoding));
      if (has_bytes && stored.length == 0) field.counts->empty.Add(number, sample);
      if (std::exchange(field.slot->last, number) != number) ++field.slot->samples;
    }
  }

  // Chooses the samples for which the second walk looks.
  void ChooseSuspects() {
    const uint64_t median = std::min(survey_.sizes.Quantile(0.5), UINT64_MAX / kHugeMedians);
    survey_.huge_above = std::max(kHugeBytes, kHugeMedians * median);
    const auto all = static_cast<double>(index_.size());
    for (auto& [name, slot] : slots_) {
      if (slot.samples == index_.size() || static_cast<double>(slot.samples) < kUsualShare * all) continue;
      slot.last = kNoObject;
      usual_.push_back(&slot);
      survey_.lacking.push_back({.names = {slot.names.begin(), slot.names.end()}, .samples = {}});
    }
  }

  void Suspect(uint64_t number, const IndexedSample& sample) {
    if (sample.span.length > survey_.huge_above) survey_.huge.Add(number, sample);
    if (usual_.empty()) return;
    for (const IndexedField& stored : sample.fields) Find(stored.name).slot->last = number;
    for (size_t i = 0; i < usual_.size(); ++i) {
      if (usual_[i]->last != number) survey_.lacking[i].samples.Add(number, sample);
    }
  }

  absl::Status ListIncomplete() {
    if (index_.kind() == DataKind::kRawObjects) return absl::OkStatus();  // these are there or not
    IndexedObject object;
    for (uint64_t i = 0; i < index_.objects(); ++i) {
      RETURN_IF_ERROR(index_.LookupObject(static_cast<uint32_t>(i), &object));
      if (object.incomplete) survey_.incomplete.push_back(object.key);
    }
    return absl::OkStatus();
  }

  const Index& index_;
  const LongTask& task_;
  Survey survey_;
  std::map<std::string_view, Field> fields_;
  std::map<std::string, Slot> slots_;
  std::vector<Slot*> usual_;  // those that some samples lack; survey_.lacking in the same order
  std::string last_key_;
};

}  // namespace

absl::StatusOr<Survey> MakeSurvey(const Index& index, const LongTask& task) {
  return Surveyor(index, task).Run();
}

bool IsClassSorted(const Index& index) {
  double total = 0;
  for (const ClassCount& one : index.class_counts()) total += static_cast<double>(one.samples);
  const auto classes = static_cast<double>(index.class_counts().size());
  if (classes < 2 || total < 2 * classes) return false;
  double same = 0;  // chance that two samples have one class
  for (const ClassCount& one : index.class_counts())
    same += static_cast<double>(one.samples) * static_cast<double>(one.samples) / (total * total);
  const double runs_if_random = 1 + (total - 1) * (1 - same);
  const auto runs = static_cast<double>(index.class_runs());
  return runs == classes || runs < runs_if_random / 10;
}

}  // namespace millrace
