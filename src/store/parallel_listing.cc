#include "store/parallel_listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

// Keys are looked at up to this depth below the prefix for a place to split.
constexpr size_t kMaxDepth = 1024;
// A range that has brought so many full pages is long: to split shorter ones gains less than it costs.
constexpr int kLongPages = 3;

int At(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

constexpr size_t kDigit = 1;

// Digits stand where digits stand: of separators, digits, upper case, lower case and the rest.
size_t KindOf(int c) {
  if (c >= '0' && c <= '9') return kDigit;
  if (c >= 'A' && c <= 'Z') return 2;
  if (c >= 'a' && c <= 'z') return 3;
  return c < 128 ? 0 : 4;
}

// Appends at most so many of the candidates, evenly chosen.
void Choose(std::vector<std::string> candidates, size_t most, std::vector<std::string>* points) {
  const size_t wanted = std::min(candidates.size(), most);
  for (size_t i = 0; i < wanted; ++i) {
    // The first of `wanted` + 1 parts stays with the range that is split, unless each candidate is one.
    const size_t at = wanted == candidates.size() ? i : (i + 1) * candidates.size() / (wanted + 1);
    points->push_back(std::move(candidates[at]));
  }
}

}  // namespace

ParallelListing::ParallelListing(std::string prefix, const Options& options)
    : prefix_(std::move(prefix)), options_(options) {
  ranges_.push_back({.id = next_id_++, .after = "", .last = "", .continuation = "", .objects = {}});
}

// The front range always may when nothing can be taken; the one furthest away only while little is buffered.
bool ParallelListing::MayAsk(int place) const {
  if (place == 0 && ranges_.front().objects.empty()) return true;
  const uint64_t coming = buffered_ + static_cast<uint64_t>(in_flight_) * options_.page;
  const int from_last = std::max(1, options_.max_requests - place);
  return coming <
         options_.max_buffered * static_cast<uint64_t>(from_last) / static_cast<uint64_t>(options_.max_requests);
}

std::optional<ParallelListing::Request> ParallelListing::Ask(Range& range) {
  range.asked = true;
  ++in_flight_;
  return Request{range.id, range.continuation.empty() ? range.after : "", range.continuation};
}

std::optional<ParallelListing::Request> ParallelListing::Next() {
  if (in_flight_ >= options_.max_requests) return std::nullopt;
  for (int attempt = 0; attempt < 2; ++attempt) {
    int place = 0;
    for (Range& range : ranges_) {
      if (range.done) continue;
      if (!MayAsk(place)) break;
      if (!range.asked) return Ask(range);
      ++place;
    }
    if (attempt > 0 || !Split()) break;
  }
  return std::nullopt;
}

// Splits the first range that is long, for as many requests as may still be made.
bool ParallelListing::Split() {
  if (!ordered_) return false;
  int place = 0;
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->done) continue;
    if (!MayAsk(++place)) return false;
    if (range->pages < kLongPages) continue;
    const auto most = static_cast<size_t>(options_.max_requests - in_flight_);
    const std::vector<std::string> points = SplitPoints(*range, most);
    if (points.empty()) continue;
    split_ = true;
    range->pages = 0;  // is split again when it proves long again
    auto before = std::next(range);
    std::string last = std::exchange(range->last, points.front());
    for (size_t i = 0; i < points.size(); ++i) {
      const bool final = i + 1 == points.size();
      ranges_.insert(before, {.id = next_id_++,
                              .after = points[i],
                              .last = final ? last : points[i + 1],
                              .continuation = "",
                              .objects = {}});
    }
    return true;
  }
  return false;
}

// Adds keys stem + c, for each character c that is likely there, above < c < below: seen somewhere, and of a kind that
// was seen in this place. The stem is the beginning of `key`. Only ASCII, and never within a character: stores take
// UTF-8 only.
void ParallelListing::AddPoints(std::string_view key, size_t stem_size, int above, int below,
                                std::vector<std::string>* points) const {
  if (stem_size < key.size() && (At(key, stem_size) & 0xC0) == 0x80) return;
  const std::string_view stem = key.substr(0, stem_size);
  const size_t place = stem.size() - prefix_.size();
  const Kinds kinds = place < kinds_.size() ? kinds_[place] : Kinds().set();
  for (int c = above + 1; c < std::min(below, 128); ++c) {
    if (seen_[static_cast<size_t>(c)] && kinds[KindOf(c)]) points->push_back(std::string(stem) + static_cast<char>(c));
  }
}

// Finds where the range may be split, above its cursor and below its end, in order: at the first position that has
// candidates. But names that begin alike differ late. A search for that position, one position after the other, would
// cost a round of requests each, while a range that turns out to be empty costs just one. So if that position has
// letters, the digits of the next number come before them: what is beyond is in the last of its ranges.
std::vector<std::string> ParallelListing::SplitPoints(const Range& range, size_t most) const {
  const std::string& low = range.after;
  const std::string& high = range.last;
  size_t common = prefix_.size();
  if (!high.empty()) {
    common = static_cast<size_t>(std::mismatch(low.begin(), low.end(), high.begin(), high.end()).first - low.begin());
  }
  std::vector<std::string> points;
  std::vector<std::string> letters;
  for (size_t depth = common; depth < std::min(low.size(), common + kMaxDepth) && points.size() < most; ++depth) {
    const size_t place = depth - prefix_.size();
    const Kinds kinds = place < kinds_.size() ? kinds_[place] : Kinds();
    const bool only_digits = kinds == Kinds().set(kDigit);
    if (!points.empty() && !only_digits) break;  // the end of the number
    std::vector<std::string> candidates;
    AddPoints(low, depth, At(low, depth), depth > common || high.empty() ? 256 : At(high, common), &candidates);
    if (candidates.empty()) continue;
    if (!kinds[kDigit]) {
      if (letters.empty()) letters = std::move(candidates);
      continue;
    }
    if (!only_digits && !letters.empty()) break;
    Choose(std::move(candidates), most - points.size(), &points);
    if (!only_digits) break;  // random names: all that is wanted is here
  }
  Choose(std::move(letters), most - points.size(), &points);
  if (points.empty() && common + 1 < high.size()) {
    std::vector<std::string> candidates;
    AddPoints(high, common + 1, -1, At(high, common + 1), &candidates);
    Choose(std::move(candidates), most, &points);
  }
  std::sort(points.begin(), points.end());
  return points;
}

// Returns the keys that show it, for a message.
std::optional<std::string> ParallelListing::FindDisorder(const Range& range,
                                                         const std::vector<ObjectInfo>& objects) const {
  if (!ordered_) return std::nullopt;
  std::string_view before = range.after;
  for (const ObjectInfo& object : objects) {
    if (object.key <= before && !before.empty()) return fmt::format("{} comes after {}", object.key, before);
    before = object.key;
  }
  return std::nullopt;
}

// Leaves one range, which is listed page by page from the beginning to the end. Returns false if what was taken does
// not allow it: another order would repeat some of it and lack others.
bool ParallelListing::FollowTheStore() {
  ordered_ = false;
  if (!split_) return true;
  const bool goes_on = !ranges_.empty() && ranges_.front().id == first_id_ && !ranges_.front().cut;
  if (!goes_on && taken_) return false;
  if (!goes_on) {
    first_id_ = next_id_++;
    ranges_.push_front({.id = first_id_, .after = "", .last = "", .continuation = "", .objects = {}});
  }
  ranges_.front().last.clear();
  ranges_.erase(std::next(ranges_.begin()), ranges_.end());
  buffered_ = ranges_.front().objects.size();
  return true;
}

// The range may have been split since it asked.
bool ParallelListing::CutAt(const std::string& last, ListPage* page) {
  if (last.empty() || page->objects.empty() || page->objects.back().key < last) return false;
  const auto end = std::upper_bound(page->objects.begin(), page->objects.end(), last,
                                    [](const std::string& key, const ObjectInfo& o) { return key < o.key; });
  page->objects.erase(end, page->objects.end());
  page->continuation.clear();
  return true;
}

// Learns which characters occur, from a few keys of each page.
void ParallelListing::Learn(const std::vector<ObjectInfo>& objects) {
  for (size_t i = 0; i < objects.size(); i += std::max<size_t>(1, objects.size() / 16)) {
    const std::string_view key =
        std::string_view(objects[i].key).substr(std::min(prefix_.size(), objects[i].key.size()));
    if (kinds_.size() < key.size()) kinds_.resize(key.size());
    for (size_t place = 0; place < key.size(); ++place) {
      seen_.set(static_cast<size_t>(At(key, place)));
      kinds_[place].set(KindOf(At(key, place)));
    }
  }
}

absl::Status ParallelListing::OnPage(uint64_t id, ListPage page) {
  --in_flight_;
  const auto find = [&] {
    return std::find_if(ranges_.begin(), ranges_.end(), [id](const Range& r) { return r.id == id; });
  };
  auto range = find();
  if (range == ranges_.end() && id < next_id_) return absl::OkStatus();  // was given up
  if (range == ranges_.end()) return absl::InternalError("a page of a range that is not listed");
  range->asked = false;
  if (!page.continuation.empty() && page.continuation == range->continuation) {
    return absl::DataLossError("the listing does not advance: the store answers the same page again");
  }
  if (const std::optional<std::string> disorder = FindDisorder(*range, page.objects)) {
    if (!FollowTheStore()) {
      return absl::DataLossError(fmt::format(
          "the store does not list its keys in order: {}; what was listed may lack some; list less at once, "
          "such as folder by folder",
          *disorder));
    }
    range = find();
    if (range == ranges_.end()) return absl::OkStatus();
  }
  range->cut = CutAt(range->last, &page) || range->cut;
  Learn(page.objects);
  range->done = page.continuation.empty();
  const bool follows_key = range->id != first_id_ && !page.objects.empty();
  range->continuation = follows_key ? "" : std::move(page.continuation);
  ++range->pages;
  if (!page.objects.empty()) range->after = page.objects.back().key;
  buffered_ += page.objects.size();
  if (range->objects.empty()) {
    range->objects = std::move(page.objects);
  } else {
    range->objects.insert(range->objects.end(), std::make_move_iterator(page.objects.begin()),
                          std::make_move_iterator(page.objects.end()));
  }
  return absl::OkStatus();
}

std::vector<ObjectInfo> ParallelListing::Take() {
  std::vector<ObjectInfo> objects;
  while (!ranges_.empty()) {
    Range& front = ranges_.front();
    objects.insert(objects.end(), std::make_move_iterator(front.objects.begin()),
                   std::make_move_iterator(front.objects.end()));
    buffered_ -= front.objects.size();
    front.objects.clear();
    if (!front.done || front.asked) break;
    ranges_.pop_front();
  }
  taken_ = taken_ || !objects.empty();
  return objects;
}

}  // namespace millrace
