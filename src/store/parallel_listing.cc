#include "store/parallel_listing.h"

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

// Keys are looked at up to this depth below the prefix for a place to split.
constexpr size_t kMaxDepth = 1024;
// A range that has brought so many full pages is long: what splits shorter ones off gains less than it costs.
constexpr int kLongPages = 3;

int At(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

ParallelListing::ParallelListing(std::string prefix, const Options& options)
    : prefix_(std::move(prefix)), options_(options) {
  ranges_.push_back({.id = next_id_++, .after = "", .last = "", .objects = {}});
}

// The front range always may; the one furthest away only while little is buffered.
bool ParallelListing::MayAsk(int place) const {
  if (place == 0) return true;
  const uint64_t coming = buffered_ + static_cast<uint64_t>(under_way_) * options_.page;
  const int from_last = std::max(1, options_.max_requests - place);
  return coming <
         options_.max_buffered * static_cast<uint64_t>(from_last) / static_cast<uint64_t>(options_.max_requests);
}

std::optional<ParallelListing::Request> ParallelListing::Ask(Range& range) {
  range.asked = true;
  ++under_way_;
  return Request{range.id, range.after};
}

std::optional<ParallelListing::Request> ParallelListing::Next() {
  if (under_way_ >= options_.max_requests) return std::nullopt;
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
  int place = 0;
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->done) continue;
    if (!MayAsk(++place)) return false;
    if (range->pages < kLongPages) continue;
    const auto most = static_cast<size_t>(options_.max_requests - under_way_);
    const std::vector<std::string> points = SplitPoints(*range, most);
    if (points.empty()) continue;
    range->pages = 0;  // is split again when it proves long again
    auto before = std::next(range);
    std::string last = std::exchange(range->last, points.front());
    for (size_t i = 0; i < points.size(); ++i) {
      const bool final = i + 1 == points.size();
      ranges_.insert(before,
                     {.id = next_id_++, .after = points[i], .last = final ? last : points[i + 1], .objects = {}});
    }
    return true;
  }
  return false;
}

// Keys stem + c, for each character c seen with above < c < below.
void ParallelListing::AddPoints(std::string_view stem, int above, int below, std::vector<std::string>* points) const {
  for (int c = above + 1; c < below; ++c) {
    if (seen_[static_cast<size_t>(c)]) points->push_back(std::string(stem) + static_cast<char>(c));
  }
}

// Where the range may be split, evenly chosen among the candidates of the first position that has any: above its cursor
// and below its end.
std::vector<std::string> ParallelListing::SplitPoints(const Range& range, size_t most) const {
  const std::string& low = range.after;
  const std::string& high = range.last;
  size_t common = prefix_.size();
  if (!high.empty()) {
    common = static_cast<size_t>(std::mismatch(low.begin(), low.end(), high.begin(), high.end()).first - low.begin());
  }
  std::vector<std::string> points;
  if (common < low.size()) {
    const int end = high.empty() ? 256 : At(high, common);
    AddPoints(std::string_view(low).substr(0, common), At(low, common), end, &points);
    for (size_t depth = common + 1; points.empty() && depth < std::min(low.size(), common + kMaxDepth); ++depth) {
      AddPoints(std::string_view(low).substr(0, depth), At(low, depth), 256, &points);
    }
  }
  if (points.empty() && common + 1 < high.size()) {
    AddPoints(std::string_view(high).substr(0, common + 1), -1, At(high, common + 1), &points);
  }
  if (points.size() <= most) return points;
  std::vector<std::string> chosen;
  for (size_t i = 0; i < most; ++i) chosen.push_back(std::move(points[(i + 1) * points.size() / (most + 1)]));
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

void ParallelListing::OnPage(uint64_t id, std::vector<ObjectInfo> objects, bool more) {
  --under_way_;
  const auto range = std::find_if(ranges_.begin(), ranges_.end(), [id](const Range& r) { return r.id == id; });
  if (range == ranges_.end()) return;
  range->asked = false;
  const size_t received = objects.size();
  // The range may have been split since it asked.
  if (!range->last.empty()) {
    const auto end = std::upper_bound(objects.begin(), objects.end(), range->last,
                                      [](const std::string& last, const ObjectInfo& o) { return last < o.key; });
    more = more && end == objects.end();
    objects.erase(end, objects.end());
  }
  if (objects.empty() || objects.back().key <= range->after) {
    range->done = !more || received == 0;
    if (received > 0 && !objects.empty()) range->done = true;
  } else {
    range->after = objects.back().key;
    range->done = !more || (!range->last.empty() && range->after == range->last);
    if (more) ++range->pages;
  }
  for (size_t i = 0; i < objects.size(); i += std::max<size_t>(1, objects.size() / 16)) {
    for (const char c : std::string_view(objects[i].key).substr(std::min(prefix_.size(), objects[i].key.size()))) {
      seen_.set(static_cast<unsigned char>(c));
    }
  }
  buffered_ += objects.size();
  if (range->objects.empty()) {
    range->objects = std::move(objects);
  } else {
    range->objects.insert(range->objects.end(), std::make_move_iterator(objects.begin()),
                          std::make_move_iterator(objects.end()));
  }
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
  return objects;
}

}  // namespace millrace
