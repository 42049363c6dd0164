#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/prices.h"
#include "diagnose/spread.h"

/// Predicts what it takes to train from a data set: time until the first batch, time of an epoch, requests, dollars.
/// Every figure comes with its arithmetic. Pure. Bytes are bytes, times seconds, a gigabyte has 10^9 bytes.

namespace millrace {

/// Is one line of arithmetic.
struct Derivation {
  std::string name;     // "download"
  std::string formula;  // "bytes / rate"
  std::string numbers;  // the same with numbers in it
  double value = 0;
  std::string unit;  // "s"
};

struct CostInputs {
  // The data set.
  uint64_t objects = 0;
  uint64_t object_bytes = 0;  // of all objects
  uint64_t samples = 0;
  uint64_t index_bytes = 0;
  bool in_efs = false;     // the data lie in EFS, too
  bool in_folder = false;  // in a folder of this machine: requests cost nothing, and a copy brings nothing

  // The store as seen from this machine, or as its provider publishes it.
  double first_byte_seconds = 0;
  double one_bytes_per_second = 0;       // of one read of a large range, behind its first byte
  double list_seconds_per_page = 0;      // of kListedPerPage objects
  double download_bytes_per_second = 0;  // of whole objects, some at a time: what File mode does
  double download_files_per_second = 0;
  double stream_bytes_per_second = 0;  // of ranges as Millrace reads them

  // The machine.
  int vcpus = 1;
  double disk_bytes_per_second = 0;   // 0: not a limit, or not known
  double dollars_per_hour = 0;        // 0: not known
  double cpu_seconds_per_sample = 0;  // reading, decoding, augmenting, batching; 0: not known

  // The training.
  uint64_t epochs = 1;
  uint64_t batch = 128;
  uint64_t workers = 1;     // readers of FastFile mode, each with one file at a time
  double step_seconds = 0;  // of the model, for a batch of each accelerator; 0: not known
  int accelerators = 1;

  // These are the trials on this machine, if the training is to run on it (trials.h). All are zero if there were none.
  Spread tried_startup_seconds;        // of streaming, the index included
  Spread tried_samples_per_second;     // of streaming, behind the first batch
  Spread tried_copy_filling_seconds;   // of objects to files, beside the listing, until their bytes come at ...
  Spread tried_copy_bytes_per_second;  // ... this rate
  /// This is, for a run on another machine, what the first batch took here beyond the arithmetic, such as connecting.
  double tried_beyond_seconds = 0;

  // This is one epoch of Millrace, from its plan.
  uint64_t stream_requests = 0;
  uint64_t stream_bytes = 0;
};

inline constexpr uint64_t kListedPerPage = 1000;
/// Objects above this number are not compared with the store when a data set is opened (dataset/dataset.h).
inline constexpr uint64_t kComparedObjects = 10'000;
/// FastFile mode is taken to read a file in requests of this size.
inline constexpr uint64_t kFastFileRequestBytes = uint64_t{8} << 20;

struct CostPrediction {
  std::string mode;            // "file", "fastfile", "mount-cache", "efs", "fsx", "streaming", "streaming-packed" ...
  std::string title;           // "File mode"
  double startup_seconds = 0;  // until the first batch
  double epoch_seconds = 0;  // of the first epoch, the model's steps included; of a tried one, from the first batch on
  double later_epoch_seconds = 0;  // of each other one
  uint64_t requests = 0;           // GETs and LISTs of the whole training
  double request_dollars = 0;
  double machine_dollars = 0;  // of startup and all epochs
  double other_dollars = 0;    // a file system for that time
  Spread startup_range;        // if it follows from trials: what the best and the worst of them say; else all zero
  Spread epoch_range;          // the same of epoch_seconds
  std::vector<Derivation> lines;

  double total_seconds(uint64_t epochs) const {
    return startup_seconds + (epochs > 0 ? epoch_seconds + static_cast<double>(epochs - 1) * later_epoch_seconds : 0);
  }
  double dollars() const { return request_dollars + machine_dollars + other_dollars; }
};

/// Lists all objects, downloads all of them, then reads the local disk.
CostPrediction PredictFile(const CostInputs& in, const PriceList& prices);
/// Lists all objects, then reads each file when the training opens it, one after the other in each worker.
CostPrediction PredictFastFile(const CostInputs& in, const PriceList& prices);
/// Uses `millrace mount` or another one with a cache: FastFile mode in the first epoch, the local disk in later ones.
CostPrediction PredictMountWithCache(const CostInputs& in, const PriceList& prices);
/// Copies the data to EFS unless they are there, then reads them from it. Only if the price list has EFS.
CostPrediction PredictEfs(const CostInputs& in, const PriceList& prices);
/// Uses a file system of Lustre that imports the bucket's names and fetches files when they are read.
CostPrediction PredictFsx(const CostInputs& in, const PriceList& prices);
/// Millrace reads what its plan needs next, many requests ahead.
CostPrediction PredictStreaming(const CostInputs& in, const PriceList& prices);
/// Does the same after `millrace pack`, which is paid once: it reads all objects and writes shards of
/// kPackedShardBytes. The rate of reading is that of the data as they are, which is a lower bound.
CostPrediction PredictStreamingPacked(const CostInputs& in, const PriceList& prices);
/// Does the same as PredictStreaming, and keeps what it has read on the local disk, which has room for it.
CostPrediction PredictStreamingWithCache(const CostInputs& in, const PriceList& prices);

// The rest is the arithmetic itself.
inline constexpr uint64_t kPackedShardBytes = 150'000'000;
/// Millrace's default order reads this many bytes of a packed data set with one request.
inline constexpr uint64_t kPackedExtentBytes = uint64_t{3} << 19;

uint64_t ListPages(uint64_t objects);
/// Returns the time of the model for the steps of an epoch; 0 if it is not known.
double ModelSeconds(const CostInputs& in);
double DownloadSeconds(double bytes, double files, double bytes_per_second, double files_per_second);
double FsxBytesPerSecond(double bytes, const PriceList& prices);
/// Returns the rate for the stored size: the base rate, or the burst rate that holds for twelve hours of a day.
double EfsBytesPerSecond(double bytes, bool burst, const PriceList& prices);
double EfsDollars(double bytes, double seconds, const PriceList& prices);
double FsxDollars(double bytes, double seconds, const PriceList& prices);
double StorageDollarsPerMonth(double bytes, const PriceList& prices);
double MachineDollars(double dollars_per_hour, double seconds);

}  // namespace millrace
