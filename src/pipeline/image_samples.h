#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipeline/source.h"

namespace millrace {

struct LoaderOptions;

/// The use that samples are read for.
struct WantedFields {
  bool images = true;              // an image is among it
  bool classes = true;             // so are the numbers of classes
  std::vector<std::string> names;  // fields that are asked for by name; such a field makes a sample, too

  static WantedFields Of(const LoaderOptions& options);
};

/// Represents the result of leaving out raw objects that are no images, if raw objects are read as images. Such objects
/// are tables of labels, texts, archives, web pages. This is the rule of torchvision's ImageFolder.
struct ImageSamples {
  /// The samples that are left out of a data set.
  struct LeftOut {
    uint64_t samples = 0;
    std::string sentence;  // with their number, kinds and first one
  };

  Source source;  // without them
  std::vector<LeftOut> left_out;
  // InvalidArgument, or OK:
  absl::Status outnumbered;    // they are more than 20 times the images, so that nothing is left out
  absl::Status empty_classes;  // a folder has no image, and would be a class
  absl::Status unlabelled;     // samples that stay have no label in the data set's file of labels

  absl::Status refusal() const;  // the first of these
};

/// Leaves out, of data sets of raw objects with images, the samples that have no image and no field of `wanted.names`.
/// Images of photo formats that are not decoded stay. So do samples that a file of labels names, all of a manifest,
/// and, without `wanted.images`, all samples. Walks the index of such a data set once for a source and all its copies,
/// as long as `wanted` is the same. Blocking; errors are those of the indexes.
absl::StatusOr<ImageSamples> OnlyImageSamples(const Source& source, const WantedFields& wanted);

/// Returns true if a sample of the index may be left out so: a raw object, beside images, that holds none.
bool IsBesideImages(const Index& index, const IndexedSample& entry);

}  // namespace millrace
