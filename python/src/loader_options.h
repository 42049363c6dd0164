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

/// What the options of a Loader mean, from the tuples in which Python gives them. All functions are called with the GIL
/// held, and throw what makes no sense as InvalidArgumentError.

namespace millrace::python {

/// The source that these data sets make; they have to stay.
Source SourceOf(const std::vector<std::shared_ptr<DatasetHandle>>& datasets);

/// (samples of an epoch, ((global sample count, weights), ...), draws, fresh passes), as Python gives them.
using MixTuple = std::tuple<uint64_t, std::vector<std::pair<uint64_t, std::vector<double>>>, std::string, bool>;
MixOptions ToMixOptions(const MixTuple& mix);

/// (layout, length, ((length, batch), ...) of buckets, documents, long documents, field, stored), as Python gives
/// them.
using TokensTuple = std::tuple<std::string, uint64_t, std::vector<std::pair<uint64_t, uint64_t>>, bool, std::string,
                               std::string, std::string>;
TokenOptions ToTokenOptions(const TokensTuple& tokens);

/// (workers, streams, local streams or None for "auto", token file, folder of TLS, name of TLS, whether to compress,
/// (name, URI of the data, whether it wants tensors) of a function that they apply), as Python gives them. The token
/// and the TLS files are read.
using WorkersTuple = std::tuple<std::vector<std::string>, nb::int_, std::optional<nb::int_>, std::string, std::string,
                                std::string, bool, std::optional<std::tuple<std::string, std::string, bool>>>;
ServiceOptions ToServiceOptions(const WorkersTuple& workers);

/// Null if no folder is given, and if it cannot be used. The loaders of a process that name the same folder (or
/// memory), size and tenant share one cache; its threads do not survive a fork.
std::shared_ptr<RangeCache> OpenCache(std::shared_ptr<Process> process, const std::string& folder,
                                      const std::string& size, const std::string& tenant);
/// The same options for a cache of this process's own.
RangeCacheOptions ToCacheOptions(const std::string& folder, const std::string& size, const std::string& tenant);

}  // namespace millrace::python
