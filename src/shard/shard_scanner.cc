#include "shard/shard_scanner.h"

#include "shard/mds_scanner.h"
#include "shard/recordio_scanner.h"
#include "shard/tar_samples.h"
#include "shard/tfrecord_scanner.h"

namespace millrace {

std::unique_ptr<ShardScanner> MakeShardScanner(DataKind kind) {
  switch (kind) {
    case DataKind::kTar:
      return std::make_unique<TarSampleScanner>();
    case DataKind::kTfRecord:
      return std::make_unique<TfRecordScanner>();
    case DataKind::kRecordIo:
      return std::make_unique<RecordIoScanner>();
    case DataKind::kMds:
      return std::make_unique<MdsScanner>();
    case DataKind::kTokens:
    case DataKind::kRawObjects:
      break;
  }
  return nullptr;
}

}  // namespace millrace
