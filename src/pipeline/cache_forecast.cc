#include "pipeline/cache_forecast.h"

#include <algorithm>
#include <list>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/rng.h"
#include "cache/cache_file.h"
#include "cache/eviction.h"
#include "pipeline/loader_plan.h"
#include "pipeline/next_use.h"

namespace millrace {

namespace {

constexpr uint64_t kDrawDomain = 0x4d522d666f7265;  // "MR-fore"
// RoomMaker uses the same number.
constexpr int kCandidates = 64;
// This is the number of items of an extent that are looked up for its first use.
constexpr uint64_t kItemsOfExtent = 64;
constexpr uint64_t kBlock = 4096;

/// Represents a unit that is kept as a whole.
struct CacheUnit {
  uint64_t first = 0;  // item
  uint64_t items = 1;
  uint64_t bytes = 0;
  uint64_t slab_bytes = 0;  // that it takes beside its own in a slab; 0: it is a range of a file
};

/// Represents a read of a unit.
struct Access {
  uint64_t use = 0;
  uint32_t unit = 0;
  uint64_t next = UseHints::kNever;  // use of the next one
  size_t epoch = 0;
};

absl::StatusOr<uint64_t> BytesOf(const Source& source, uint64_t first, uint64_t items) {
  if (source.tokens() != nullptr) return static_cast<uint64_t>(source.mean_item_bytes() * static_cast<double>(items));
  IndexedSample one;
  IndexedSample last;
  RETURN_IF_ERROR(source.Lookup(first, &one));
  if (items == 1) return one.span.length;
  RETURN_IF_ERROR(source.Lookup(first + items - 1, &last));
  if (last.object == one.object && last.span.end() > one.span.offset) return last.span.end() - one.span.offset;
  uint64_t bytes = 0;
  for (uint64_t item = first; item < first + items; ++item) {
    RETURN_IF_ERROR(source.Lookup(item, &one));
    bytes += one.span.length;
  }
  return bytes;
}

// Returns the bytes beside those of a unit that is a whole small object: of its head and its record. Its neighbours
// also leave some of blocks of the disk, which are used again, but not to the last byte. 0 for other units.
absl::StatusOr<uint64_t> SlabBytesOf(const LoaderPlan& plan, size_t part, const CacheUnit& unit) {
  constexpr uint64_t kTexts = 36;  // an ETag and the lengths
  constexpr uint64_t kLeft = 768;
  constexpr uint64_t kLeftOf = 64;
  if (unit.items != 1 || plan.source.tokens() != nullptr) return 0;
  IndexedSample sample;
  IndexedObject object;
  RETURN_IF_ERROR(plan.source.Lookup(unit.first, &sample));
  RETURN_IF_ERROR(plan.source.parts()[part].index().LookupObject(sample.object, &object));
  if (object.size >= cache_format::kSmallBytes || sample.span != ByteRange{0, object.size}) return 0;
  const uint64_t of_record = cache_format::kRecordBytes + SlabMarginBytes(object.size);
  return kTexts + object.key.size() + of_record + std::min(kLeft, object.size / kLeftOf);
}

/// Represents the units of a source, all or a sample of them, and their reads.
class Units {
 public:
  Units(const LoaderPlan& plan, const CacheForecastOptions& options) : plan_(plan), options_(options) {}

  absl::Status Find() {
    for (size_t part = 0; part < plan_.source.parts().size(); ++part) all_ += UnitsOf(part);
    // One of `step` neighbours is drawn.
    const uint64_t step = (all_ + options_.most_units - 1) / std::max<uint64_t>(options_.most_units, 1);
    for (size_t part = 0; part < plan_.source.parts().size(); ++part) {
      const uint64_t items = ItemsOfUnit(part);
      const uint64_t size = plan_.source.SizeOf(part);
      for (uint64_t number = 0; number < UnitsOf(part); number += step) {
        const uint64_t drawn = number + Rng(HashKey(kDrawDomain, {part, number})).Below(step);
        if (drawn >= UnitsOf(part)) continue;
        const uint64_t first = drawn * items;
        CacheUnit unit{plan_.source.FirstOf(part) + first, std::min(items, size - first), 0, 0};
        ASSIGN_OR_RETURN(unit.bytes, BytesOf(plan_.source, unit.first, unit.items));
        ASSIGN_OR_RETURN(unit.slab_bytes, SlabBytesOf(plan_, part, unit));
        units_.push_back(unit);
      }
    }
    share_ = all_ == 0 ? 1 : static_cast<double>(units_.size()) / static_cast<double>(all_);
    return absl::OkStatus();
  }

  std::vector<Access> Reads(uint64_t first_epoch) const {
    std::vector<Access> reads;
    for (uint64_t epoch = 0; epoch < options_.epochs; ++epoch) {
      const EpochOrder order(plan_, first_epoch + epoch);
      for (uint32_t number = 0; number < units_.size(); ++number) {
        for (const uint64_t turn : Turns(order, units_[number]))
          reads.push_back({epoch * order.turns() + turn, number, UseHints::kNever, static_cast<size_t>(epoch)});
      }
    }
    std::sort(reads.begin(), reads.end(), [](const Access& a, const Access& b) { return a.use < b.use; });
    std::vector<uint64_t> next(units_.size(), UseHints::kNever);
    for (size_t i = reads.size(); i-- > 0;) {
      reads[i].next = next[reads[i].unit];
      next[reads[i].unit] = reads[i].use;
    }
    return reads;
  }

  const std::vector<CacheUnit>& units() const { return units_; }
  uint64_t all() const { return all_; }
  double share() const { return share_; }

 private:
  uint64_t ItemsOfUnit(size_t part) const { return NextUse::Together(plan_, part) ? plan_.policies[part].extent : 1; }
  uint64_t UnitsOf(size_t part) const {
    return (plan_.source.SizeOf(part) + ItemsOfUnit(part) - 1) / ItemsOfUnit(part);
  }

  // Returns the turns at which the first one of its items comes. In a mix there may be several turns, one in each pass.
  std::vector<uint64_t> Turns(const EpochOrder& order, const CacheUnit& unit) const {
    std::vector<uint64_t> turns;
    if (!order.invertible()) return turns;  // nothing is known
    const uint64_t world = plan_.options.world;
    const uint64_t local = options_.local_ranks == 0 ? world : options_.local_ranks;
    const uint64_t stride = std::max<uint64_t>(1, unit.items / kItemsOfExtent);
    for (uint64_t item = unit.first; item < unit.first + unit.items; item += stride) {
      size_t times = 0;
      for (auto turn = order.NextTurnOf(item, 0); turn; turn = order.NextTurnOf(item, *turn + 1)) {
        if (*turn % world >= local) continue;
        if (times == turns.size()) turns.push_back(*turn);
        turns[times] = std::min(turns[times], *turn);
        ++times;
      }
    }
    return turns;
  }

  const LoaderPlan& plan_;
  const CacheForecastOptions& options_;
  std::vector<CacheUnit> units_;
  uint64_t all_ = 0;
  double share_ = 1;
};

/// Gets each read that a cache of one policy would serve.
using Hit = absl::FunctionRef<void(const Access&)>;

void SimulateOptimum(const std::vector<Access>& reads, const std::vector<CacheUnit>& units, uint64_t capacity,
                     Hit hit) {
  std::set<std::pair<uint64_t, uint32_t>> by_use;
  absl::flat_hash_map<uint32_t, uint64_t> cached;  // with the next use
  uint64_t bytes = 0;
  for (const Access& read : reads) {
    if (const auto found = cached.find(read.unit); found != cached.end()) {
      hit(read);
      by_use.erase({found->second, read.unit});
      bytes -= units[read.unit].bytes;
    }
    cached[read.unit] = read.next;
    by_use.insert({read.next, read.unit});
    bytes += units[read.unit].bytes;
    while (bytes > capacity) {
      const auto last = std::prev(by_use.end());
      bytes -= units[last->second].bytes;
      cached.erase(last->second);
      by_use.erase(last);
    }
  }
}

void SimulateLru(const std::vector<Access>& reads, const std::vector<CacheUnit>& units, uint64_t capacity, Hit hit) {
  std::list<uint32_t> order;
  absl::flat_hash_map<uint32_t, std::list<uint32_t>::iterator> cached;
  uint64_t bytes = 0;
  for (const Access& read : reads) {
    if (const auto found = cached.find(read.unit); found != cached.end()) {
      hit(read);
      order.splice(order.begin(), order, found->second);
    } else {
      order.push_front(read.unit);
      cached[read.unit] = order.begin();
      bytes += units[read.unit].bytes;
    }
    while (bytes > capacity) {
      bytes -= units[order.back()].bytes;
      cached.erase(order.back());
      order.pop_back();
    }
  }
}

void SimulateOurs(const std::vector<Access>& reads, const std::vector<CacheUnit>& units, uint64_t capacity,
                  uint64_t period, Hit hit) {
  constexpr uint32_t kJob = UseHints::kUnplanned + 1;
  EvictionPolicy policy;
  Rng rng(HashKey(kDrawDomain, {capacity}));
  std::vector<uint32_t> there;
  struct Entry {
    size_t place = 0;
    UseHints hints;
  };
  absl::flat_hash_map<uint32_t, Entry> cached;
  uint64_t bytes = 0;
  std::vector<EvictionPolicy::Candidate> candidates;
  std::vector<uint32_t> drawn;
  const auto remove = [&](uint32_t unit) {
    const size_t place = cached.at(unit).place;
    cached.erase(unit);
    there[place] = there.back();
    there.pop_back();
    if (place < there.size()) cached.at(there[place]).place = place;
    bytes -= units[unit].bytes;
  };
  for (const Access& read : reads) {
    // These hints are those of a loader, which also knows epochs behind the last one. Nothing of those epochs is
    // counted here.
    const UseHints hints{kJob, read.next == UseHints::kNever ? read.use + period : read.next};
    if (const auto found = cached.find(read.unit); found != cached.end()) {
      hit(read);
      found->second.hints = hints;
      continue;
    }
    policy.SetJobs({{kJob, read.use, period}});
    bool room = true;
    while (room && bytes + units[read.unit].bytes > capacity) {
      candidates.clear();
      drawn.clear();
      for (int i = 0; i < kCandidates && !there.empty(); ++i) {
        drawn.push_back(there[rng.Below(there.size())]);
        candidates.push_back({cached.at(drawn.back()).hints, units[drawn.back()].bytes, true});
      }
      const EvictionPolicy::Choice choice = policy.Choose(candidates, hints);
      room = choice.what == EvictionPolicy::Choice::What::kEvict;
      if (room) remove(drawn[choice.index]);
    }
    if (!room) continue;
    cached[read.unit] = {there.size(), hints};
    there.push_back(read.unit);
    bytes += units[read.unit].bytes;
  }
}

uint64_t Objects(const Source& source) {
  std::set<const Dataset*> seen;
  uint64_t objects = 0;
  for (const Subset& part : source.parts()) {
    if (seen.insert(part.dataset).second) objects += part.index().objects();
  }
  return objects;
}

}  // namespace

CacheForecast::Epoch CacheForecast::Sum() const {
  Epoch sum;
  for (const Epoch& epoch : epochs) {
    sum.bytes += epoch.bytes;
    sum.hits.ours += epoch.hits.ours;
    sum.hits.lru += epoch.hits.lru;
    sum.hits.optimum += epoch.hits.optimum;
  }
  return sum;
}

absl::StatusOr<CacheForecast> ForecastCache(const Source& source, LoaderOptions options,
                                            const CacheForecastOptions& cache) {
  if (cache.epochs == 0) return absl::InvalidArgumentError("a forecast of no epoch says nothing");
  if (cache.local_ranks > options.world) {
    return absl::InvalidArgumentError("the cache is shared by more ranks than there are; raise --world");
  }
  ASSIGN_OR_RETURN(const LoaderPlan plan, SettleOrder(source, std::move(options)));
  Units found(plan, cache);
  RETURN_IF_ERROR(found.Find());
  std::vector<CacheUnit> units = found.units();
  // A range begins and ends within blocks of the disk; a file takes some for itself, and for the records. Small objects
  // have no file.
  uint64_t in_slabs = 0;
  uint64_t kept_bytes = 0;
  std::vector<uint64_t> read_bytes;
  for (CacheUnit& unit : units) {
    read_bytes.push_back(unit.bytes);
    in_slabs += unit.slab_bytes > 0 ? 1 : 0;
    unit.bytes += unit.slab_bytes > 0 ? unit.slab_bytes : kBlock;
    kept_bytes += unit.bytes;
  }
  const uint64_t objects = Objects(source);
  const auto in_no_file = static_cast<uint64_t>(static_cast<double>(in_slabs) / found.share());
  const uint64_t of_files = (objects - std::min(objects, in_no_file)) * (CacheFile::kEmptyDiskBytes + 2 * kBlock);
  const uint64_t capacity = cache.capacity_bytes > of_files ? cache.capacity_bytes - of_files : 0;
  const auto scaled = [&](uint64_t bytes) { return static_cast<uint64_t>(static_cast<double>(bytes) / found.share()); };
  const auto of_sample = static_cast<uint64_t>(static_cast<double>(capacity) * found.share());

  CacheForecast forecast;
  forecast.units = found.all();
  forecast.sampled = found.share() < 1;
  forecast.data_bytes = scaled(kept_bytes) + of_files;
  forecast.epochs.resize(cache.epochs);
  const std::vector<Access> reads = found.Reads(plan.options.start ? plan.options.start->epoch : 0);
  for (const Access& read : reads) forecast.epochs[read.epoch].bytes += scaled(read_bytes[read.unit]);
  const auto counts = [&](uint64_t CacheForecast::Policies::*hits) {
    return [&, hits](const Access& read) { forecast.epochs[read.epoch].hits.*hits += scaled(read_bytes[read.unit]); };
  };
  const uint64_t period = EpochOrder(plan, 0).turns();
  SimulateOurs(reads, units, of_sample, period, counts(&CacheForecast::Policies::ours));
  SimulateLru(reads, units, of_sample, counts(&CacheForecast::Policies::lru));
  SimulateOptimum(reads, units, of_sample, counts(&CacheForecast::Policies::optimum));
  return forecast;
}

}  // namespace millrace
