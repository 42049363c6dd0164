#pragma once

#include <string>
#include <vector>

#include "pipeline/loader.h"
#include "pipeline/source.h"

namespace millrace {

/// Where raw objects are read as images, others that lie beside them are no samples: tables of labels, texts, archives,
/// web pages. This is the rule of torchvision's ImageFolder.
struct ImageSamples {
  Source source;                      // without them
  std::vector<std::string> left_out;  // for each data set that has some, a sentence with their number, kinds and first
};

/// Leaves out, of data sets of raw objects with images, the samples that have no image and no field that `options` ask
/// for by name. Images of formats that are not decoded stay, samples that a file of labels names, and all samples if
/// `options` ask for no image. Goes through the indexes of such data sets once. Blocking; errors are those of the
/// indexes.
absl::StatusOr<ImageSamples> OnlyImageSamples(const Source& source, const LoaderOptions& options);

}  // namespace millrace
