#include "store/parallel_listing.h"

#include <fmt/format.h>

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

// Digits stand where digits stand: of separators, digits, upper case, lower case and the rest.
size_t KindOf(int c) {
  if (c >= '0' && c <= '9') return 1;
  if (c >= 'A' && c <= 'Z') return 2;
  if (c >= 'a' && c <= 'z') return 3;
  return c < 128 ? 0 : 4;
}

}  // namespace

ParallelListing::ParallelListing(std::string prefix, const Options& options)
    : prefix_(std::move(prefix)), options_(options) {
  ranges_.push_back({.id = next_id_++, .after = "", .last = "", .continuation = "", .objects = {}});
}

// The front range always may when nothing can be taken; the one furthest away only while little is buffered.
bool ParallelListing::MayAsk(int place) const {
  if (place == 0 && ranges_.front().objects.empty()) return true;
  const uint64_t coming = buffered_ + static_cast<uint64_t>(under_way_) * options_.page;
  const int from_last = std::max(1, options_.max_requests - place);
  return coming <
         options_.max_buffered * static_cast<uint64_t>(from_last) / static_cast<uint64_t>(options_.max_requests);
}

std::optional<ParallelListing::Request> ParallelListing::Ask(Range& range) {
  range.asked = true;
  ++under_way_;
  return Request{range.id, range.continuation.empty() ? range.after : "", range.continuation};
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
  if (!ordered_) return false;
  int place = 0;
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->done) continue;
    if (!MayAsk(++place)) return false;
    if (range->pages < kLongPages) continue;
    const auto most = static_cast<size_t>(options_.max_requests - under_way_);
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

// Keys stem + c, for each character c that is likely there, above < c < below: seen somewhere, and of a kind that was
// seen in this place. The stem is the beginning of `key`. Only ASCII, and never within a character: stores take UTF-8
// only.
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
    AddPoints(low, common, At(low, common), end, &points);
    for (size_t depth = common + 1; points.empty() && depth < std::min(low.size(), common + kMaxDepth); ++depth) {
      AddPoints(low, depth, At(low, depth), 256, &points);
    }
  }
  if (points.empty() && common + 1 < high.size()) {
    AddPoints(high, common + 1, -1, At(high, common + 1), &points);
  }
  if (points.size() <= most) return points;
  std::vector<std::string> chosen;
  for (size_t i = 0; i < most; ++i) chosen.push_back(std::move(points[(i + 1) * points.size() / (most + 1)]));
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// A store is believed to list in order until it does not. When it has been split by then, keys may be missing.
absl::Status ParallelListing::CheckOrder(const Range& range, const std::vector<ObjectInfo>& objects) {
  if (!ordered_) return absl::OkStatus();
  std::string_view before = range.after;
  for (const ObjectInfo& object : objects) {
    if (object.key <= before && !before.empty()) {
      if (split_) {
        return absl::DataLossError(
            fmt::format("the store does not list its keys in order: {} comes after {}; what was listed may lack some",
                        object.key, before));
      }
      ordered_ = false;
      return absl::OkStatus();
    }
    before = object.key;
  }
  return absl::OkStatus();
}

// The range may have been split since it asked.
void ParallelListing::CutAt(const std::string& last, ListPage* page) const {
  if (last.empty() || page->objects.empty() || page->objects.back().key < last) return;
  const auto end = std::upper_bound(page->objects.begin(), page->objects.end(), last,
                                    [](const std::string& key, const ObjectInfo& o) { return key < o.key; });
  page->objects.erase(end, page->objects.end());
  page->continuation.clear();
}

// Which characters occur, from a few keys of each page.
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
  --under_way_;
  const auto range = std::find_if(ranges_.begin(), ranges_.end(), [id](const Range& r) { return r.id == id; });
  if (range == ranges_.end()) return absl::InternalError("a page of a range that is not listed");
  range->asked = false;
  if (!page.continuation.empty() && page.continuation == range->continuation) {
    return absl::DataLossError("the listing does not advance: the store answers the same page again");
  }
  RETURN_IF_ERROR(CheckOrder(*range, page.objects));
  CutAt(range->last, &page);
  Learn(page.objects);
  range->done = page.continuation.empty();
  range->continuation = std::move(page.continuation);
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
  return objects;
}

}  // namespace millrace
