#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/range_cache.h"
#include "dataset_handle.h"
#include "pipeline/loader.h"
#include "service/service_source.h"

/// These functions convert the options of a Loader from the tuples in which Python gives them. All functions are called
/// with the GIL held, and throw InvalidArgumentError for values that make no sense.

namespace millrace::python {

/// Returns the source that these data sets make; they have to stay.
Source SourceOf(const std::vector<std::shared_ptr<DatasetHandle>>& datasets);

/// (samples of an epoch, ((global sample count, weights), ...), draws, fresh passes), as Python gives them.
using MixTuple = std::tuple<uint64_t, std::vector<std::pair<uint64_t, std::vector<double>>>, std::string, bool>;
MixOptions ToMixOptions(const MixTuple& mix);

/// Python gives tokens as (layout, length, ((length, batch), ...) of buckets, documents, long documents, field,
/// stored).
using TokensTuple = std::tuple<std::string, uint64_t, std::vector<std::pair<uint64_t, uint64_t>>, bool, std::string,
                               std::string, std::string>;
TokenOptions ToTokenOptions(const TokensTuple& tokens);

/// Python gives workers as (workers, streams, local streams or None for "auto", token file, folder of TLS, name of TLS,
/// whether to compress, ...). Last comes (name, URI of the data, whether it wants tensors) of a function that they
/// apply. The token and the TLS files are read.
using WorkersTuple = std::tuple<std::vector<std::string>, nb::int_, std::optional<nb::int_>, std::string, std::string,
                                std::string, bool, std::optional<std::tuple<std::string, std::string, bool>>>;
ServiceOptions ToServiceOptions(const WorkersTuple& workers);

/// Returns null if no folder is given, and if it cannot be used. The loaders of a process that name the same folder (or
/// memory), size and tenant share one cache; its threads do not survive a fork.
std::shared_ptr<RangeCache> OpenCache(std::shared_ptr<Process> process, const std::string& folder,
                                      const std::string& size, const std::string& tenant);
/// Returns the same options for a cache of this process's own.
RangeCacheOptions ToCacheOptions(const std::string& folder, const std::string& size, const std::string& tenant);

}  // namespace millrace::python
