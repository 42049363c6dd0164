#pragma once

#include <memory>
#include <string>

#include "s3/client.h"
#include "store/testing/contract.h"

namespace millrace {

/// Is a bucket of an S3 server. Open() empties it: never point this at data that somebody needs.
class S3Place : public StorePlace {
 public:
  S3Place(S3Config config, std::string bucket);

  std::unique_ptr<ObjectStore> Open() override;
  std::unique_ptr<ObjectStore> OpenMissing() override;

 private:
  Runtime runtime_;
  S3Client client_;
  const std::string bucket_;
};

}  // namespace millrace
