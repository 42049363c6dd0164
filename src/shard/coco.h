#pragma once

#include <string_view>

#include "shard/manifest.h"

namespace millrace {

/// Returns true for annotations as COCO has them: one JSON object with lists "images" and "annotations" of objects.
bool IsCoco(std::string_view json);

/// Each image of COCO's annotations as a row: its path is `file_name`. The values are those of its annotations, in
/// their order in the file, as JSON lists: `boxes` ([left, top, width, height]), `labels` (the numbers of categories as
/// the file has them), `area` and `iscrowd`; `captions` in a file of captions; and `image_id`, `height` and `width`. An
/// image without annotations has empty lists. Masks and keypoints are passed over. InvalidArgument for malformed JSON,
/// an image without name or number, and a number that two images have. It also comes for a box that is not four
/// numbers, and for an annotation of an image that is not there. Memory: about 60 bytes an annotation, beside the text.
absl::StatusOr<Manifest> ParseCoco(std::string_view json, ManifestSink each);

}  // namespace millrace
