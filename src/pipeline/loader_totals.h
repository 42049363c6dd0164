#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "pipeline/batch_source.h"
#include "pipeline/program_waits.h"

namespace millrace {

class MetricsText;

/// Sums up the work of the loaders of a process, by the names of the data that they read. Sums never fall: the work of
/// a loader stays in them when it has ended. Thread-safe.
class LoaderTotals {
 public:
  /// The maximal number of names that are counted apart; the loaders of all others are counted together as kOthers.
  static constexpr size_t kMaxNames = 100;
  static constexpr const char* kOthers = "others";

  struct WorkerSum {
    uint64_t rows = 0;
    uint64_t failures = 0;
  };
  struct Sum {
    uint64_t open = 0;   // loaders that read now
    uint64_t begun = 0;  // loaders that were begun
    uint64_t samples = 0;
    uint64_t tokens = 0;
    uint64_t token_places = 0;
    uint64_t quarantined = 0;
    double seconds = 0;                                // between the first and the last call of each consumer
    std::array<double, kStallCauses> stall_seconds{};  // also those of a wait that has not ended
    std::map<std::string, double> work_seconds;        // by ProgramWaits::work, also of a wait that has not ended
    bool has_cache = false;
    CacheReport cache;
    std::map<std::string, WorkerSum> workers;  // by their names

    void Add(const LoaderReport& report);
  };

  /// The waits of a program since its loader was counted. No number in it ever falls.
  struct ProgramSum {
    std::array<double, kStallCauses> stall_seconds{};
    double work_seconds = 0;
    double seconds = 0;

    /// Adds waits. Waits for data get the causes for which the loader's consumer has waited meanwhile, in their
    /// proportions.
    void Add(const ProgramWaits::Seconds& waits, const StallReport& loader);

   private:
    StallReport counted_;
  };

  /// Counts one loader until this is destroyed, which must be before the loader is. The totals outlive it.
  class Entry {
   public:
    Entry(LoaderTotals& totals, std::string name, const BatchSource& source)
        : totals_(totals), name_(std::move(name)), source_(source) {}
    ~Entry() { totals_.End(*this); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    friend class LoaderTotals;
    LoaderTotals& totals_;
    const std::string name_;
    const BatchSource& source_;
  };

  /// Counts a loader. `data` is the URI of the data that it reads, or another name. `program` has the waits of the
  /// program, which then count in place of those of the consumer; null: the program is the consumer.
  std::unique_ptr<Entry> Count(std::string data, const BatchSource& source,
                               std::shared_ptr<ProgramWaits> program = nullptr);

  /// Returns the sums by name.
  std::map<std::string, Sum> Sums() const;

 private:
  struct Open {
    const BatchSource* source = nullptr;
    std::shared_ptr<ProgramWaits> program{};
    ProgramSum program_sum{};
  };

  void End(const Entry& entry);
  static void AddOpen(const Open& open, Sum* sum);

  mutable std::mutex mutex_;
  std::map<std::string, Sum> ended_;
  mutable std::map<const Entry*, Open> open_;
};

/// Adds the sums to the metrics of this process.
void CollectLoaders(const LoaderTotals& totals, MetricsText* text);

}  // namespace millrace
