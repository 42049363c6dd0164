#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "pipeline/batch_field.h"

namespace millrace::python {

using PerChannel = std::array<float, 3>;

/// Python gives a transform as (name, probability, numbers).
using TransformTuple = std::tuple<std::string, double, std::vector<double>>;

/// Python gives an image as (height, width, channels, (augment, crop scale, crop ratio, flip probability), dtype,
/// layout, mean, std, interpolation, ...). The rest says whether pixels are numbers, whether EXIF turns them, exact,
/// transforms, and whether they stay encoded.
using ImageTuple =
    std::tuple<int, int, int, std::tuple<bool, std::array<double, 2>, std::array<double, 2>, double>, std::string,
               std::string, PerChannel, PerChannel, std::string, bool, bool, bool, std::vector<TransformTuple>, bool>;
ImageSpec ToImageSpec(const ImageTuple& image);

/// Python gives a field as (name, field, kind, image or None, the image that it follows, kind of label or form of
/// boxes).
using FieldTuple =
    std::tuple<std::string, std::string, std::string, std::optional<ImageTuple>, std::string, std::string>;
std::vector<BatchField> ToFields(const std::vector<FieldTuple>& fields);

}  // namespace millrace::python
