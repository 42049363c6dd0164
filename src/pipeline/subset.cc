#include "pipeline/subset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <latch>
#include <string_view>
#include <utility>

#include "base/rng.h"

namespace millrace {

namespace {

constexpr uint64_t kSubsetDomain = 0x4d522d7375627365;  // "MR-subse"
// Samples that one task goes through: whole chunks of selections.
constexpr uint64_t kTaskSamples = 8 * Selection::kChunk;

// The samples of a stretch of the index, by group.
struct Dealt {
  std::vector<Selection::Builder> groups;
  std::vector<uint64_t> bytes;
  absl::Status status;
};

Dealt Deal(const Subset& of, uint64_t first, uint64_t last, uint32_t groups, GroupOf group_of) {
  const uint64_t universe = of.index().size();
  Dealt dealt;
  dealt.groups.assign(groups, Selection::Builder(universe, first));
  dealt.bytes.assign(groups, 0);
  uint64_t rank = of.selection ? of.selection->Where(first) : first;
  uint64_t next = rank < of.size() ? of.SampleAt(rank) : universe;
  dealt.status = of.index().Scan(first, last, [&](uint64_t sample, const IndexedSample& entry) {
    if (sample != next) return;
    if (const std::optional<uint32_t> group = group_of(rank, entry)) {
      dealt.groups[*group].Add(sample);
      dealt.bytes[*group] += entry.span.length;
    }
    next = ++rank < of.size() ? of.SampleAt(rank) : universe;
  });
  return dealt;
}

absl::Status CheckHasClasses(const Subset& of) {
  const Index& index = of.index();
  if (index.has_labels()) return absl::OkStatus();
  if (!index.class_counts().empty()) {
    return absl::FailedPreconditionError(fmt::format(
        "{}: its index is of version {}, which does not keep the classes of the samples of shards; build it "
        "anew: millrace index {}",
        of.dataset->uri(), index.version(), of.dataset->uri()));
  }
  return absl::FailedPreconditionError(
      fmt::format("{}: the index knows no classes: of raw objects these are the folders, of shards the numbers in the "
                  "field 'cls' (at most 65,536 of them); choose samples by their numbers instead",
                  of.dataset->uri()));
}

absl::StatusOr<std::vector<bool>> WantedClasses(const Subset& of, const std::vector<std::string>& classes) {
  RETURN_IF_ERROR(CheckHasClasses(of));
  const std::vector<ClassCount>& known = of.index().class_counts();
  std::vector<bool> wanted(known.size());
  for (const std::string& name : classes) {
    const auto found =
        std::find_if(known.begin(), known.end(), [&name](const ClassCount& one) { return one.name == name; });
    if (found == known.end()) {
      constexpr size_t kShown = 20;
      std::vector<std::string_view> shown;
      for (size_t i = 0; i < std::min(known.size(), kShown); ++i) shown.emplace_back(known[i].name);
      return absl::InvalidArgumentError(fmt::format("{} has no class '{}'; its {} classes are: {}{}", of.dataset->uri(),
                                                    name, known.size(), fmt::join(shown, ", "),
                                                    known.size() > kShown ? ", ..." : ""));
    }
    wanted[static_cast<size_t>(found - known.begin())] = true;
  }
  return wanted;
}

absl::Status CheckFields(const Subset& of, const std::vector<std::string>& fields) {
  const std::vector<std::string>& names = of.index().field_names();
  for (const std::string& field : fields) {
    if (std::find(names.begin(), names.end(), field) != names.end()) continue;
    return absl::InvalidArgumentError(
        fmt::format("{} has no field '{}'; its fields are: {}", of.dataset->uri(), field, fmt::join(names, ", ")));
  }
  return absl::OkStatus();
}

bool HasField(const IndexedSample& entry, const std::string& name) {
  return std::any_of(entry.fields.begin(), entry.fields.end(), [&](const auto& field) { return field.name == name; });
}

}  // namespace

Subset::Subset(const Dataset& whole) : dataset(&whole), total_bytes(whole.index().total_bytes()) {}

Subset::Subset(const Dataset& of, Selection chosen, uint64_t bytes) : dataset(&of), total_bytes(bytes) {
  if (chosen.size() < chosen.universe()) selection = std::make_shared<const Selection>(std::move(chosen));
}

uint64_t Subset::fingerprint() const {
  const uint64_t whole = index().fingerprint();
  return selection ? HashKey(kSubsetDomain, {whole, selection->fingerprint()}) : whole;
}

absl::StatusOr<std::vector<Subset>> GroupBy(Runtime& runtime, const Subset& of, uint32_t groups, GroupOf group_of) {
  const uint64_t universe = of.index().size();
  const uint64_t tasks = (universe + kTaskSamples - 1) / kTaskSamples;
  std::vector<Dealt> dealt(tasks);
  const auto run = [&](uint64_t task) {
    const uint64_t first = task * kTaskSamples;
    dealt[task] = Deal(of, first, std::min(universe, first + kTaskSamples), groups, group_of);
  };
  if (tasks == 1) {
    run(0);
  } else {
    std::latch left(static_cast<std::ptrdiff_t>(tasks));
    for (uint64_t task = 0; task < tasks; ++task) {
      runtime.cpu().Submit([&run, &left, task] {
        run(task);
        left.count_down();
      });
    }
    left.wait();
  }
  for (const Dealt& piece : dealt) RETURN_IF_ERROR(Annotate(piece.status, of.dataset->uri()));
  std::vector<Subset> result;
  for (uint32_t group = 0; group < groups; ++group) {
    Selection::Builder joined(universe);
    uint64_t bytes = 0;
    for (Dealt& piece : dealt) {
      joined.Append(std::move(piece.groups[group]));
      bytes += piece.bytes[group];
    }
    result.emplace_back(*of.dataset, std::move(joined).Finish(), bytes);
  }
  return result;
}

absl::StatusOr<Subset> Where(Runtime& runtime, const Subset& of, const SubsetQuery& query) {
  RETURN_IF_ERROR(CheckFields(of, query.has));
  std::vector<bool> classes;
  if (query.classes) {
    ASSIGN_OR_RETURN(classes, WantedClasses(of, *query.classes));
  }
  if (query.samples && query.samples->universe() != of.index().size()) {
    return absl::InvalidArgumentError(fmt::format("a selection of {} samples does not fit {}, which has {}",
                                                  query.samples->universe(), of.dataset->uri(), of.index().size()));
  }
  const auto meets = [&](uint64_t rank, const IndexedSample& entry) -> std::optional<uint32_t> {
    if (entry.span.length < query.min_bytes || entry.span.length > query.max_bytes) return std::nullopt;
    if (query.keys && !query.keys->Takes(entry.key)) return std::nullopt;
    if (query.classes && (!entry.label || !classes[*entry.label])) return std::nullopt;
    for (const std::string& field : query.has) {
      if (!HasField(entry, field)) return std::nullopt;
    }
    if (query.samples && !query.samples->Contains(of.SampleAt(rank))) return std::nullopt;
    return 0;
  };
  ASSIGN_OR_RETURN(std::vector<Subset> found, GroupBy(runtime, of, 1, meets));
  return std::move(found.front());
}

absl::StatusOr<std::vector<Subset>> ByClass(Runtime& runtime, const Subset& of) {
  RETURN_IF_ERROR(CheckHasClasses(of));
  const std::vector<ClassCount>& classes = of.index().class_counts();
  ASSIGN_OR_RETURN(std::vector<Subset> parts,
                   GroupBy(runtime, of, static_cast<uint32_t>(classes.size()),
                           [](uint64_t, const IndexedSample& entry) { return entry.label; }));
  for (size_t i = 0; i < parts.size(); ++i) parts[i].class_name = classes[i].name;
  return parts;
}

}  // namespace millrace
