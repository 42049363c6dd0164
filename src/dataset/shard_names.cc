#include "dataset/shard_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/counted.h"
#include "base/number.h"

namespace millrace {

namespace {

constexpr uint64_t kMostShards = 1'000'000;  // whose names are looked at
constexpr uint64_t kMostMissing = 1'000'000;
constexpr size_t kShownMissing = 5;
constexpr size_t kMostStems = 5;  // more are names of another kind, such as hashes
constexpr size_t kMostDigits = 9;

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view FolderOfKey(std::string_view key) {
  return key.substr(0, key.rfind('/') + 1);
}

// Returns the beginning of the digits that end before `end`.
size_t BeginOfDigits(std::string_view text, size_t end) {
  while (end > 0 && IsDigit(text[end - 1])) --end;
  return end;
}

size_t EndOfDigits(std::string_view text, size_t begin) {
  while (begin < text.size() && IsDigit(text[begin])) ++begin;
  return begin;
}

// Represents the range of the digits of a text.
struct Digits {
  size_t begin = 0;
  size_t end = 0;

  size_t size() const { return end - begin; }
};

// Finds N of "N-of-M", and M.
std::optional<std::pair<Digits, Digits>> FindTotal(std::string_view name) {
  for (const std::string_view of : {"-of-", "_of_"}) {
    const size_t at = name.rfind(of);
    if (at == std::string_view::npos) continue;
    const Digits number{.begin = BeginOfDigits(name, at), .end = at};
    const Digits total{.begin = at + of.size(), .end = EndOfDigits(name, at + of.size())};
    const auto fits = [](const Digits& digits) { return digits.size() > 0 && digits.size() <= kMostDigits; };
    if (fits(number) && fits(total)) return std::pair(number, total);
  }
  return std::nullopt;
}

// Returns true for "part-00007-UUID-c000.tfrecord".
bool IsOfSpark(std::string_view name) {
  return (name.starts_with("part-") || name.starts_with("part_")) && name.size() > 5 && IsDigit(name[5]);
}

// Finds the number of a name. Spark counts in front, others at the end.
Digits FindNumber(std::string_view name) {
  if (IsOfSpark(name)) return {.begin = 5, .end = EndOfDigits(name, 5)};
  size_t end = std::min(name.rfind('.'), name.size());
  while (end > 0 && !IsDigit(name[end - 1])) --end;
  return {.begin = BeginOfDigits(name, end), .end = end};
}

// Returns the text with '*' for each number.
std::string Masked(std::string_view text) {
  std::string masked;
  for (const char c : text) {
    if (!IsDigit(c)) {
      masked += c;
    } else if (!masked.ends_with('*')) {
      masked += '*';
    }
  }
  return masked;
}

std::string Lowered(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Returns the split words among all words of a text.
std::set<std::string_view> SplitWords(std::string_view text) {
  std::set<std::string_view> words;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && letter(text[end])) ++end;
    if (const std::string_view split = SplitWord(text.substr(begin, end - begin)); !split.empty()) words.insert(split);
    begin = end + 1;
  }
  return words;
}

}  // namespace

std::string_view SplitWord(std::string_view word) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"train", "train"},    {"training", "train"},  {"trn", "train"},   {"val", "val"},      {"valid", "val"},
      {"validation", "val"}, {"dev", "val"},         {"test", "test"},   {"testing", "test"}, {"tst", "test"},
      {"eval", "eval"},      {"evaluation", "eval"}, {"holdout", "test"}};
  const std::string lower = Lowered(word);
  for (const auto& [spelling, split] : kWords) {
    if (spelling == lower) return split;
  }
  return {};
}

// Represents a key in parts. Keys that differ only in the number are a series.
struct ShardNames::Parsed {
  std::string front;
  std::string_view digits;
  std::string between;
  std::string back;
  std::optional<uint64_t> total;
  std::string stem;  // as it is shown
};

ShardNames::Parsed ShardNames::Parse(std::string_view key) {
  const std::string_view folder = FolderOfKey(key);
  const std::string_view name = key.substr(folder.size());
  Parsed parsed;
  if (const auto found = FindTotal(name)) {
    const auto& [number, total] = *found;
    parsed.front = key.substr(0, folder.size() + number.begin);
    parsed.digits = name.substr(number.begin, number.size());
    parsed.between = name.substr(number.end, total.end - number.end);
    parsed.back = name.substr(total.end);
    parsed.total = ParseNumber<uint64_t>(name.substr(total.begin, total.size()));
    parsed.stem = Masked(name.substr(0, number.begin)) + "*" + Masked(parsed.back);
    return parsed;
  }
  const Digits number = FindNumber(name);
  parsed.front = key.substr(0, folder.size() + number.begin);
  parsed.digits = name.substr(number.begin, number.size());
  parsed.back = name.substr(number.end);
  // The text that Spark writes behind the number is different for each job.
  const bool of_spark = IsOfSpark(name);
  if (of_spark) parsed.back = parsed.back.substr(std::min(parsed.back.find('.'), parsed.back.size()));
  parsed.stem = of_spark ? "part-*" + parsed.back : Masked(name);
  return parsed;
}

std::string ShardNames::Series::NameOf(uint64_t number) const {
  return fmt::format("{}{:0{}}{}{}", front, number, width, between, back);
}

void ShardNames::Add(std::string_view key) {
  if (shards_ == kMostShards) return;
  ++shards_;
  const Parsed parsed = Parse(key);
  const bool numbered = !parsed.digits.empty() && parsed.digits.size() <= kMostDigits;
  Stem& stem = folders_[std::string(FolderOfKey(key))][parsed.stem];
  ++stem.shards;
  stem.numbered = numbered;
  if (!numbered) return;
  const auto id = fmt::format("{}\n{}\n{}", parsed.front, parsed.between, parsed.back);
  Series& series = series_[id];
  if (series.numbers.empty()) {
    series = {.front = parsed.front,
              .between = parsed.between,
              .back = parsed.back,
              .width = parsed.digits.size(),
              .total = parsed.total,
              .numbers = {}};
  }
  series.width = std::min(series.width, parsed.digits.size());
  series.numbers.push_back(*ParseNumber<uint64_t>(parsed.digits));
}

void ShardNames::AddMissing(std::vector<std::string>* warnings) const {
  for (const auto& [id, series] : series_) {
    std::vector<uint64_t> numbers = series.numbers;
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    uint64_t from = numbers.front();
    uint64_t to = numbers.back() + 1;
    if (series.total) {  // most count from 0, some from 1
      const bool from_one = from > 0 && numbers.back() == *series.total;
      from = from_one ? 1 : 0;
      to = *series.total + from;
    }
    if (to - from > numbers.size() + kMostMissing) continue;
    std::vector<std::string> first;
    uint64_t missing = 0;
    for (uint64_t number = from; number < to; ++number) {
      if (std::binary_search(numbers.begin(), numbers.end(), number)) continue;
      std::string name = series.NameOf(number);
      if (selection_ != nullptr && !selection_->Contains(name)) continue;
      if (missing++ < kShownMissing) first.push_back(std::move(name));
    }
    // Without a total, wide gaps show that the numbers count something else.
    if (missing == 0 || (!series.total && missing >= numbers.size())) continue;
    warnings->push_back(fmt::format("{} of the series {}*{}{} {} missing: {}{}", Counted(missing, "shard"),
                                    series.front, series.between, series.back, missing == 1 ? "is" : "are",
                                    fmt::join(first, ", "), missing > first.size() ? ", ..." : ""));
  }
}

void ShardNames::AddTotals(std::vector<std::string>* warnings) const {
  std::map<std::pair<std::string, std::string>, std::vector<const Series*>> by_name;
  for (const auto& [id, series] : series_) {
    if (series.total) by_name[{series.front, series.back}].push_back(&series);
  }
  for (const auto& [name, several] : by_name) {
    if (several.size() < 2) continue;
    std::vector<std::string> names;
    for (const Series* series : several)
      names.push_back(fmt::format("{}*{}{}", name.first, series->between, name.second));
    warnings->push_back(
        fmt::format("the shards are those of several writings ({}), which may hold the same samples; "
                    "remove one, or select the shards: '{}'",
                    fmt::join(names, ", "), names.front()));
  }
}

void ShardNames::AddStems(std::vector<std::string>* warnings) const {
  for (const auto& [folder, stems] : folders_) {
    std::set<std::string_view> splits;
    uint64_t numbered = 0;
    uint64_t most = 0;
    for (const auto& [name, stem] : stems) {
      splits.merge(SplitWords(name));
      numbered += stem.numbered ? 1 : 0;
      most = std::max(most, stem.numbered ? stem.shards : 0);
    }
    const bool few = stems.size() <= kMostStems && (numbered > 1 || most > 1);
    if (stems.size() < 2 || (!few && splits.size() < 2)) continue;
    std::vector<std::string> shown;
    for (const auto& [name, stem] : stems) {
      if (shown.size() < kMostStems) shown.push_back(fmt::format("{}{} ({})", folder, name, stem.shards));
    }
    warnings->push_back(
        fmt::format("shards with different stems become one data set: {}{}; if they are several, "
                    "select one: '{}{}'",
                    fmt::join(shown, ", "), stems.size() > shown.size() ? ", ..." : "", folder, stems.begin()->first));
  }
}

void ShardNames::AddFolders(std::vector<std::string>* warnings) const {
  std::map<std::string_view, std::string_view> splits;  // and a folder of each
  for (const auto& [folder, stems] : folders_) {
    for (std::string_view rest = folder; !rest.empty();) {
      const std::string_view component = rest.substr(0, rest.find('/'));
      if (const std::string_view split = SplitWord(component); !split.empty())
        splits.try_emplace(split, std::string_view(folder).substr(0, folder.size() - rest.size() + component.size()));
      rest.remove_prefix(component.size() + 1);
    }
    // These are shards of a folder, and of one above it.
    for (std::string_view above = folder; !above.empty();) {
      above.remove_suffix(1);
      above = FolderOfKey(above);
      const auto found = folders_.find(above);
      if (found == folders_.end()) continue;
      warnings->push_back(fmt::format(
          "shards lie in '{}', and others above it ({}): if these are copies or another data set, move them "
          "away, or select the shards: '{}{}'",
          folder, found->second.begin()->first, above, found->second.begin()->first));
      break;
    }
  }
  if (splits.size() < 2) return;
  std::vector<std::string_view> names;
  for (const auto& [split, folder] : splits) names.push_back(folder);
  warnings->push_back(
      fmt::format("shards in the folders {} become one data set; give the URI of one of them to keep them apart",
                  fmt::join(names, ", ")));
}

std::vector<std::string> ShardNames::Warnings() const {
  std::vector<std::string> warnings;
  AddMissing(&warnings);
  AddTotals(&warnings);
  AddStems(&warnings);
  AddFolders(&warnings);
  return warnings;
}

}  // namespace millrace
