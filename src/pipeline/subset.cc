#include "pipeline/subset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <latch>
#include <span>
#include <string_view>
#include <utility>

#include "base/rng.h"
#include "base/unicode_forms.h"
#include "pipeline/distinct_keys.h"
#include "pipeline/image_samples.h"

namespace millrace {

namespace {

constexpr uint64_t kSubsetDomain = 0x4d522d7375627365;  // "MR-subse"
// This is the number of samples in one task: whole chunks of selections.
constexpr uint64_t kTaskSamples = 8 * Selection::kChunk;
// If there are at most this many groups, each task has a builder for each group. For more groups, that would take
// longer than to read the index twice.
constexpr uint32_t kFewGroups = 2048;

// Calls `run` with 0 .. tasks-1, on the CPU pool.
void RunAll(Runtime& runtime, uint64_t tasks, absl::FunctionRef<void(uint64_t)> run) {
  if (tasks == 1) return run(0);
  std::latch left(static_cast<std::ptrdiff_t>(tasks));
  for (uint64_t task = 0; task < tasks; ++task) {
    runtime.cpu().Submit([run, &left, task] {
      run(task);
      left.count_down();
    });
  }
  left.wait();
}

// Reads the members of a subset from some number on, one after the other.
class MemberReader {
 public:
  MemberReader(const Subset& of, uint64_t first) : of_(of), rank_(of.selection ? of.selection->RankOf(first) : first) {
    Fill();
  }

  uint64_t rank() const { return rank_; }
  uint64_t sample() const { return block_[used_]; }  // the universe, behind the last one
  void Next() {
    ++rank_;
    if (++used_ == block_.size()) Fill();
  }

 private:
  void Fill() {
    used_ = 0;
    block_.fill(of_.index().size());
    if (of_.selection) {
      of_.selection->Read(rank_, std::span(block_).first(std::min(block_.size(), of_.size() - rank_)));
    } else {
      for (uint64_t i = 0; i < std::min(block_.size(), of_.size() - rank_); ++i) block_[i] = rank_ + i;
    }
  }

  const Subset& of_;
  uint64_t rank_;
  std::array<uint64_t, 64> block_;
  size_t used_ = 0;
};

// Calls `each` with the number, group and entry of those of samples first .. last-1 that have a group.
absl::Status ForEachGrouped(const Subset& of, uint64_t first, uint64_t last, GroupOf group_of,
                            absl::FunctionRef<void(uint64_t, uint32_t, const IndexedSample&)> each) {
  MemberReader members(of, first);
  return of.index().Scan(first, last, [&](uint64_t sample, const IndexedSample& entry) {
    if (sample != members.sample()) return;
    if (const std::optional<uint32_t> group = group_of(members.rank(), entry)) each(sample, *group, entry);
    members.Next();
  });
}

// Represents the samples of a stretch of the index, by group.
struct Dealt {
  std::vector<Selection::Builder> groups;
  std::vector<uint64_t> bytes;
  absl::Status status;
};

absl::StatusOr<std::vector<Subset>> DealToFew(Runtime& runtime, const Subset& of, uint32_t groups, GroupOf group_of) {
  const uint64_t universe = of.index().size();
  std::vector<Dealt> dealt((universe + kTaskSamples - 1) / kTaskSamples);
  RunAll(runtime, dealt.size(), [&](uint64_t task) {
    Dealt& piece = dealt[task];
    const uint64_t first = task * kTaskSamples;
    piece.groups.assign(groups, Selection::Builder(universe, first));
    piece.bytes.assign(groups, 0);
    piece.status = ForEachGrouped(of, first, std::min(universe, first + kTaskSamples), group_of,
                                  [&](uint64_t sample, uint32_t group, const IndexedSample& entry) {
                                    piece.groups[group].Add(sample);
                                    piece.bytes[group] += entry.span.length;
                                  });
  });
  for (const Dealt& piece : dealt) RETURN_IF_ERROR(piece.status);
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

// Does the same for any number of groups: counts the samples of each, so that the numbers can be put straight to their
// places. Memory: that of the lists, and 24 bytes a group for each thread.
class ManyGroups {
 public:
  ManyGroups(Runtime& runtime, const Subset& of, uint32_t groups, GroupOf group_of)
      : runtime_(runtime), of_(of), groups_(groups), group_of_(group_of) {
    const uint64_t universe = of.index().size();
    const auto threads = static_cast<uint64_t>(runtime.cpu().threads());
    const uint64_t stretch = std::max(kTaskSamples, (universe + threads - 1) / threads);
    for (uint64_t first = 0; first < universe; first += stretch) {
      stretches_.push_back({.first = first, .last = std::min(universe, first + stretch)});
    }
  }

  absl::StatusOr<std::vector<Subset>> Deal() {
    RunAll(runtime_, stretches_.size(), [this](uint64_t i) { Count(stretches_[i]); });
    for (const Stretch& stretch : stretches_) RETURN_IF_ERROR(stretch.status);
    MakeLists();
    RunAll(runtime_, stretches_.size(), [this](uint64_t i) { Place(stretches_[i]); });
    for (const Stretch& stretch : stretches_) RETURN_IF_ERROR(stretch.status);
    return Finish();
  }

 private:
  // Represents the share of a group in a stretch.
  struct Share {
    uint64_t samples = 0;  // that are to be placed
    uint64_t bytes = 0;    // of all of them
    uint64_t place = 0;    // of the next one in the group's list
  };
  struct Stretch {
    uint64_t first = 0;
    uint64_t last = 0;
    std::vector<Share> shares;  // by group
    absl::Status status;
  };
  struct Member {
    uint64_t sample = 0;
    uint32_t group = 0;
  };

  void Count(Stretch& stretch) {
    stretch.shares.resize(groups_);
    stretch.status = ForEachGrouped(of_, stretch.first, stretch.last, group_of_,
                                    [&](uint64_t /*sample*/, uint32_t group, const IndexedSample& entry) {
                                      ++stretch.shares[group].samples;
                                      stretch.shares[group].bytes += entry.span.length;
                                    });
  }

  void MakeLists() {
    for (uint32_t group = 0; group < groups_; ++group) {
      uint64_t size = 0;
      uint64_t bytes = 0;
      for (Stretch& stretch : stretches_) {
        Share& share = stretch.shares[group];
        share.place = size;
        size += share.samples;
        bytes += share.bytes;
      }
      lists_.emplace_back(of_.index().size(), size);
      bytes_.push_back(bytes);
    }
  }

  // Places samples in the lists of their groups. Lists lie far apart in memory, so many samples wait for it at once.
  void Place(Stretch& stretch) {
    std::array<Member, 64> members;
    size_t waiting = 0;
    bool same = true;
    const auto place = [&] {
      const auto all = std::span(members).first(std::exchange(waiting, 0));
      for (const Member& member : all) lists_[member.group].Prefetch(stretch.shares[member.group].place);
      for (const Member& member : all) same = same && Put(member, &stretch.shares[member.group]);
    };
    stretch.status = ForEachGrouped(of_, stretch.first, stretch.last, group_of_,
                                    [&](uint64_t sample, uint32_t group, const IndexedSample& /*entry*/) {
                                      members[waiting++] = {sample, group};
                                      if (waiting == members.size()) place();
                                    });
    place();
    for (const Share& share : stretch.shares) same = same && share.samples == 0;
    if (stretch.status.ok() && !same) {
      stretch.status = absl::FailedPreconditionError("the groups of samples changed while they were dealt; try again");
    }
  }

  // Places one sample. Returns false if its group is not the same as before: there is no room for the sample.
  bool Put(const Member& member, Share* share) {
    if (share->samples == 0) return false;
    --share->samples;
    lists_[member.group].Set(share->place++, member.sample);
    return true;
  }

  std::vector<Subset> Finish() {
    stretches_.clear();
    constexpr uint64_t kGroupsOfTask = 64;
    std::vector<Subset> result(groups_, Subset(*of_.dataset));
    RunAll(runtime_, (groups_ + kGroupsOfTask - 1) / kGroupsOfTask, [&](uint64_t task) {
      const uint64_t last = std::min<uint64_t>(groups_, (task + 1) * kGroupsOfTask);
      for (uint64_t group = task * kGroupsOfTask; group < last; ++group) {
        result[group] =
            Subset(*of_.dataset, Selection::Of(of_.index().size(), std::move(lists_[group])), bytes_[group]);
      }
    });
    return result;
  }

  Runtime& runtime_;
  const Subset& of_;
  const uint32_t groups_;
  const GroupOf group_of_;
  std::vector<Stretch> stretches_;
  std::vector<NumberList> lists_;  // of each group
  std::vector<uint64_t> bytes_;
};

absl::Status CheckHasClasses(const Subset& of) {
  RETURN_IF_ERROR(CheckClassesRead(of));
  if (of.index().has_labels()) return absl::OkStatus();
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

// Returns true for the file of labels itself, which lies beside the raw objects.
bool IsTheLabelsFile(const Subset& of, const IndexedSample& entry) {
  IndexedObject object;
  if (of.index().kind() != DataKind::kRawObjects || !of.index().LookupObject(entry.object, &object).ok()) return false;
  const std::string& uri = of.dataset->labels()->uri;
  return uri == object.key || uri.ends_with("/" + object.key);
}

}  // namespace

absl::Status CheckClassesRead(const Subset& of) {
  if (!of.index().classes_unread()) return absl::OkStatus();
  const bool raw = of.index().kind() == DataKind::kRawObjects;
  return absl::FailedPreconditionError(fmt::format(
      "{}: the classes of its samples lie in {}, which have not been read; have the index read them, and open it "
      "again: "
      "millrace index --classes {}",
      of.dataset->uri(), raw ? "files (such as 1.cls beside 1.jpg)" : "its shards", of.dataset->place().UriInShell()));
}

Subset::Subset(const Dataset& whole) : dataset(&whole), total_bytes(whole.index().total_bytes()) {}

Subset::Subset(const Dataset& of, Selection chosen, uint64_t bytes) : dataset(&of), total_bytes(bytes) {
  if (chosen.size() < chosen.universe()) selection = std::make_shared<const Selection>(std::move(chosen));
}

uint64_t Subset::fingerprint() const {
  const uint64_t whole = index().fingerprint();
  return selection ? HashKey(kSubsetDomain, {whole, selection->fingerprint()}) : whole;
}

absl::StatusOr<std::vector<Subset>> GroupBy(Runtime& runtime, const Subset& of, uint32_t groups, GroupOf group_of) {
  absl::StatusOr<std::vector<Subset>> dealt = groups <= kFewGroups ? DealToFew(runtime, of, groups, group_of)
                                                                   : ManyGroups(runtime, of, groups, group_of).Deal();
  if (!dealt.ok()) return Annotate(dealt.status(), of.dataset->uri());
  return dealt;
}

absl::StatusOr<Subset> Where(Runtime& runtime, const Subset& of, const Filter& filter) {
  RETURN_IF_ERROR(CheckFields(of, filter.has));
  RETURN_IF_ERROR(CheckFields(of, filter.has_any));
  if (filter.keys && !filter.key_groups) RETURN_IF_ERROR(CheckKeysDiffer(of.index(), of.dataset->uri()));
  std::vector<bool> classes;
  if (filter.classes) {
    ASSIGN_OR_RETURN(classes, WantedClasses(of, *filter.classes));
  }
  if (filter.samples && filter.samples->universe() != of.index().size()) {
    return absl::InvalidArgumentError(fmt::format("a selection of {} samples does not fit {}, which has {}",
                                                  filter.samples->universe(), of.dataset->uri(), of.index().size()));
  }
  const auto meets = [&](uint64_t rank, const IndexedSample& entry) -> std::optional<uint32_t> {
    if (entry.span.length < filter.min_bytes || entry.span.length > filter.max_bytes) return std::nullopt;
    if (filter.keys && !filter.keys->Takes(entry.key)) return std::nullopt;
    if (filter.classes && (!entry.label || !classes[*entry.label])) return std::nullopt;
    for (const std::string& field : filter.has) {
      if (!HasField(entry, field)) return std::nullopt;
    }
    if (!filter.has_any.empty() &&
        std::none_of(filter.has_any.begin(), filter.has_any.end(),
                     [&entry](const std::string& field) { return HasField(entry, field); })) {
      return std::nullopt;
    }
    if (filter.samples && !filter.samples->Contains(of.SampleAt(rank))) return std::nullopt;
    return 0;
  };
  ASSIGN_OR_RETURN(std::vector<Subset> found, GroupBy(runtime, of, 1, meets));
  return std::move(found.front());
}

absl::StatusOr<Subset> InLabelsFile(Runtime& runtime, const Subset& of, MissingLabels missing) {
  if (of.dataset->labels() == nullptr || !of.index().SomeLackLabels()) return of;
  enum Group : uint32_t { kLabelled, kLacking, kBesideImages, kGroups };
  const auto group_of = [&](uint64_t, const IndexedSample& entry) -> std::optional<uint32_t> {
    if (entry.in_labels_file) return kLabelled;
    if (IsTheLabelsFile(of, entry)) return std::nullopt;
    return !of.dataset->is_manifest() && IsBesideImages(of.index(), entry) ? kBesideImages : kLacking;
  };
  ASSIGN_OR_RETURN(std::vector<Subset> found, GroupBy(runtime, of, kGroups, group_of));
  const Subset& labelled = found[kLabelled];
  if (labelled.size() > 0 && missing == MissingLabels::kDrop) return labelled;
  if (labelled.size() > 0 && found[kLacking].size() == 0) {
    if (found[kBesideImages].size() == 0) return labelled;
    ASSIGN_OR_RETURN(std::vector<Subset> kept,
                     GroupBy(runtime, of, 1, [&](uint64_t rank, const IndexedSample& entry) -> std::optional<uint32_t> {
                       const std::optional<uint32_t> group = group_of(rank, entry);
                       return group ? std::optional<uint32_t>(0) : std::nullopt;
                     }));
    return kept.front();
  }
  const Subset& lacking = found[found[kLacking].size() > 0 ? kLacking : kBesideImages];
  if (lacking.size() == 0) return labelled;  // nothing is there but the file of labels
  constexpr uint64_t kShown = 5;
  std::vector<std::string> keys;
  IndexedSample entry;
  for (uint64_t rank = 0; rank < std::min(kShown, lacking.size()); ++rank) {
    RETURN_IF_ERROR(of.index().Lookup(lacking.SampleAt(rank), &entry));
    keys.push_back(entry.key);
  }
  return NoLabels(*of.dataset, lacking.size(), of.size(), keys);
}

absl::Status NoLabels(const Dataset& dataset, uint64_t lacking, uint64_t samples,
                      const std::vector<std::string>& first_keys) {
  std::vector<std::string> keys;
  for (const std::string& key : first_keys) keys.push_back(fmt::format("'{}'", key));
  return absl::InvalidArgumentError(fmt::format(
      "{} has no label for {} of the {} samples of {}: {}{}; add them, or leave these samples out (--missing-labels "
      "drop, in Python Labels(uri, missing=\"drop\")){}",
      dataset.labels()->uri, lacking, samples, dataset.uri(), fmt::join(keys, ", "),
      lacking > keys.size() ? ", ..." : "", OnUnicodeForms(keys.front(), "")));
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
