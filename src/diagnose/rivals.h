#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "diagnose/bench.h"
#include "diagnose/spread.h"

/// Loaders of others are measured over the same data: what they took beside Millrace, in processes of their own
/// (rivals/, which is part of the program). That they did the same work is checked, not assumed.

namespace millrace {

/// Returns the names of those that rivals/rival_loaders.py knows.
const std::vector<std::string>& RivalNames();

/// Names the rival, and its data, that are measured.
struct RivalRequest {
  std::string name;
  std::string uri;  // of data in its own format; "": those that Millrace reads
};
/// Parses "NAME[=URI]", with commas between several; "all": all that are not named beside it, too. InvalidArgument for
/// other names, and for a name that comes twice.
absl::StatusOr<std::vector<RivalRequest>> ParseRivals(const std::vector<std::string>& texts);

/// Holds the means of the pixels of decoded images.
struct PixelMeans {
  uint64_t samples = 0;
  double mean = 0;           // of their means, 0 to 255
  double deviation = 0;      // of these means
  bool whole_epoch = false;  // they are all images of the data set, each once
};
struct OwnImages {
  PixelMeans pixels;
  std::string kind;  // of the data, as KindName
};
/// Measures Millrace's own batches with the settings' images: those of the first epoch, or its first `most` samples.
/// InvalidArgument if batches have no images of bytes. Other errors as MeasureRate.
absl::StatusOr<OwnImages> MeasureOwnImages(const std::string& uri, const BenchSettings& settings, uint64_t most);

/// Returns why these cannot be the same images, cropped at random by each; "" if they can.
std::string PixelsDiffer(const PixelMeans& ours, const PixelMeans& theirs);

struct RivalPoint {
  std::string name;
  std::string uri;       // of its own data, if it has some
  int workers = 0;       // that it had
  std::string left_out;  // why there are no figures; "" if there are
  double first_batch_seconds = 0;
  Spread samples_per_second;
  Spread cpu_per_1000;  // CPU-seconds for 1,000 samples, of all its processes
  PixelMeans pixels;
  std::vector<std::pair<std::string, std::string>> versions;  // of its packages
};

struct RivalRun {
  std::string uri;           // of the data
  std::string environments;  // a folder: NAME/bin/python below it runs the rival, if it exists; else DefaultPython()
  std::string scratch;       // an existing folder for what is downloaded; all of it is the rival's
  std::string copies;        // a URI below which copies of the data may be put, for rivals that read other formats; "":
                             // these are left out
  int workers = 1;           // processes, or threads that decode
  OwnImages ours;
};
/// Runs the rival with the batch, images, repeats and times of `settings`. If it does not read the data as they are, or
/// reads another format faster, and if copies are allowed, it makes a copy first (`copies`/NAME). Making the copy is
/// not measured, and the copy stays. Errors that are its own, and those of its copy, become `left_out`; Cancelled soon
/// after a stop is requested; else errors of `scratch`.
absl::StatusOr<RivalPoint> MeasureRival(const RivalRequest& request, const RivalRun& run,
                                        const BenchSettings& settings);

/// Has epochs one after the other, each from its beginning.
struct RivalEpochs {
  std::string name;
  bool kept = false;  // what was read stayed on the local disk
  int workers = 0;
  std::string left_out;           // why there are no figures; "" if there are
  std::vector<EpochCost> epochs;  // of others without requests and digests
};
/// Measures epochs of a rival over data that it reads as they are. With `keep` it keeps the bytes that it has read in
/// `scratch` for later epochs, which only some rivals can. Else as MeasureRival; the number of images is checked, but
/// not their content.
absl::StatusOr<RivalEpochs> MeasureRivalEpochs(const RivalRequest& request, const RivalRun& run,
                                               const BenchSettings& settings, uint64_t epochs, bool keep);

/// Parses the last line that a rival has printed, as figures; InvalidArgument if it makes no sense.
absl::StatusOr<RivalPoint> ParseRivalAnswer(std::string_view line);

}  // namespace millrace
