#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "diagnose/bench.h"
#include "diagnose/spread.h"

/// Tries what `millrace advise` predicts, on this machine: a small data set as a whole, of a large one the beginning.

namespace millrace {

/// How far a stretch of an epoch has come.
struct TrialMark {
  double seconds = 0;  // since it began
  double cpu_seconds = 0;
  uint64_t samples = 0;
};

/// What the marks of one stretch, in their order, say of samples that come behind it.
struct TrialRates {
  std::vector<double> samples_per_second;  // of several windows
  double cpu_seconds_per_sample = 0;
};
/// Of a stretch that was cut off: by its second half, since in the first one the pipeline was filled. Empty if there
/// are not enough marks. Pure.
TrialRates RatesFromMarks(const std::vector<TrialMark>& marks);

/// What the loader did with a data set, several times from nothing.
struct LoaderTrial {
  size_t tries = 0;
  uint64_t samples = 0;       // that the longest of them had delivered
  bool whole = false;         // which was an epoch
  Spread startup_seconds;     // from nothing to the first batch; with the index, if each try fetched it
  Spread samples_per_second;  // behind the first batch; all zero if nothing came behind it
  double cpu_seconds_per_sample = 0;
};
/// With the loader of `settings`, for an epoch; each try has threads, stores and connections of its own. Waits for the
/// first batch however long it takes; beside that, and what opening takes, it takes some ten seconds at most. If
/// `index_bytes` is not 0, each try begins with an empty cache folder below $TMPDIR, to which the index of so many
/// bytes is copied from beside the data; if they are more than a quarter of the free space there, or no folder can be
/// made, the cache folder of `settings` is used. Blocking. Errors are those of Dataset::Open and Loader; Cancelled soon
/// after a stop is requested.
absl::StatusOr<LoaderTrial> TryLoader(const std::string& uri, const BenchSettings& settings, uint64_t index_bytes);

/// How far a copy had come when an object was done.
struct CopyMark {
  double seconds = 0;  // since it began, without what waiting for the listing took
  uint64_t bytes = 0;  // of all objects that were done
};

/// What a copy of other objects of the same kind takes: `filling_seconds`, and its bytes at the rate.
struct CopyRate {
  double filling_seconds = 0;  // until as many objects are in flight as there may be, and the first of them come
  double bytes_per_second = 0;
};
/// The line that is closest to the marks, in their order. Marks of the end of a copy, when no further objects are
/// begun, do not belong to them. Both are 0 if the marks do not say. Pure.
CopyRate CopyRateFromMarks(const std::vector<CopyMark>& marks);

/// What it took to copy objects of a data set to files, as `millrace cp --recursive` does it, several times.
struct CopyTrial {
  size_t tries = 0;
  uint64_t objects = 0;
  uint64_t bytes = 0;
  bool whole = false;       // these were all
  Spread filling_seconds;   // of a part, as CopyRate; 0 if these were all, or too few to tell
  Spread bytes_per_second;  // beside that, and beside the listing; all zero if nothing could be copied
};
/// Into temporary files, which are removed again: at most so many bytes, and a quarter of the disk's free space, and
/// none but the first that are begun later than after some seconds. Copies nothing of a data set that is not simply
/// what lies below a prefix. Blocking. Errors as above, but objects that cannot be copied, and a $TMPDIR that cannot be
/// used, end a trial without figures.
absl::StatusOr<CopyTrial> TryCopy(const std::string& uri, const BenchSettings& settings, uint64_t most_bytes);

}  // namespace millrace
