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

/// Is the progress of a stretch of an epoch.
struct TrialMark {
  double seconds = 0;  // since it began
  double cpu_seconds = 0;
  uint64_t samples = 0;
};

/// Has the rates that follow from the marks of one stretch, for the samples behind it.
struct TrialRates {
  std::vector<double> samples_per_second;  // of several windows
  double cpu_seconds_per_sample = 0;
};
/// Uses the second half of a stretch that was cut off, since the pipeline was filled during the first half. Empty if
/// there are not enough marks. Pure.
TrialRates RatesFromMarks(const std::vector<TrialMark>& marks);

/// Has the figures of a loader over a data set, which was begun several times from nothing.
struct LoaderTrial {
  size_t tries = 0;
  uint64_t samples = 0;       // that the longest of them had delivered
  bool whole = false;         // which was an epoch
  Spread startup_seconds;     // from nothing to the first batch; with the index, if each try fetched it
  Spread samples_per_second;  // behind the first batch; all zero if nothing came behind it
  double cpu_seconds_per_sample = 0;
};
/// Runs the loader of `settings` for an epoch, several times; each try has threads, stores and connections of its own.
/// It waits for the first batch however long that takes. Without this wait, and without opening, it takes about ten
/// seconds at most. If `index_bytes` is not 0, each try begins with an empty cache folder below $TMPDIR. The index,
/// which has this size, is copied to it from beside the data. If the index is larger than a quarter of the free space
/// there, or if no folder can be made, the cache folder of `settings` is used. Blocking. Errors are those of
/// Dataset::Open and Loader; Cancelled soon after a stop is requested.
absl::StatusOr<LoaderTrial> TryLoader(const std::string& uri, const BenchSettings& settings, uint64_t index_bytes);

/// Is the progress of a copy when an object was done.
struct CopyMark {
  double seconds = 0;  // since it began, without what waiting for the listing took
  uint64_t bytes = 0;  // of all objects that were done
};

/// States the time to copy other objects of the same kind: `filling_seconds`, and their bytes at the rate.
struct CopyRate {
  double filling_seconds = 0;  // until as many objects are in flight as there may be, and the first of them come
  double bytes_per_second = 0;
};
/// Fits the line that is closest to the marks, in their order. Marks of the end of a copy, when no further objects are
/// begun, do not belong to them. Both are 0 if the marks do not say. Pure.
CopyRate CopyRateFromMarks(const std::vector<CopyMark>& marks);

/// Measures the time to copy objects of a data set to files, as `millrace cp --recursive` does it, several times.
struct CopyTrial {
  size_t tries = 0;
  uint64_t objects = 0;
  uint64_t bytes = 0;
  bool whole = false;       // these were all
  Spread filling_seconds;   // of a part, as CopyRate; 0 if these were all, or too few to tell
  Spread bytes_per_second;  // beside that, and beside the listing; all zero if nothing could be copied
};
/// Copies objects into temporary files, and removes these again. It copies at most this many bytes, and at most a
/// quarter of the disk's free space. After some seconds it begins no further object, except for the first ones. A data
/// set that is not simply all objects below a prefix is not copied. Blocking. Errors are as above. Objects that cannot
/// be copied, and a $TMPDIR that cannot be used, end a trial without figures.
absl::StatusOr<CopyTrial> TryCopy(const std::string& uri, const BenchSettings& settings, uint64_t most_bytes);

}  // namespace millrace
