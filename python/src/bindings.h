#pragma once

#include <nanobind/nanobind.h>

/// These are the parts of the module _core. Each function adds the classes and functions of one file (module.cc calls
/// all).

namespace millrace::python {

void BindCheckpoints(nanobind::module_& module);
void BindDataset(nanobind::module_& module);
void BindFiles(nanobind::module_& module);
/// Adds _core.Loader, and _core.Batches, which its loops use.
void BindLoader(nanobind::module_& module);
/// Adds _core.list_objects and read_objects: whole objects, each as (URI, bytes, ETag); of -1 bytes: not known yet.
void BindObjectList(nanobind::module_& module);
/// Adds the calls that a file system needs beside files: _core.list_place, stat_object, remove_objects and copy_object.
void BindPlaces(nanobind::module_& module);
/// Adds _core.Plan: the plan of one epoch, over whole arrays.
void BindPlan(nanobind::module_& module);
/// Adds _core.StagedDataset, of which a Loader begins before there is an index.
void BindStagedDataset(nanobind::module_& module);
/// Adds _core.tar_begin, tar_sample and tar_end: the bytes of WebDataset shards.
void BindTarSample(nanobind::module_& module);
void BindWorker(nanobind::module_& module);

}  // namespace millrace::python
