// ParameterCollection and trainers as Python objects. Hand-written types like Expression: a subclass need
// not call the __init__ of its base, and an update of a small model costs less than pybind11's dispatch.
#pragma once
#include <memory>

#include "bindings/expression.h"
#include "bindings/pybind_names.h"
#include "model/collection.h"

namespace dyc {
class Trainer;
}

namespace dyc::py {

extern PyTypeObject ParameterCollectionType;

PyObject* make_collection(const std::shared_ptr<Collection>& collection,
                          PyTypeObject* type = &ParameterCollectionType);
inline bool is_collection(PyObject* object) { return PyObject_TypeCheck(object, &ParameterCollectionType); }
// Throws PythonError after setting TypeError, which names op and argument.
const std::shared_ptr<Collection>& as_collection(PyObject* object, const char* op, const char* name);

// Throws RuntimeError unless this is "" or the name of an available device.
void check_device(const std::string& device, const char* op = "device");  // devices.cc

void add_model(pybind11::module_& m);         // model.cc: collections, and what follows
void add_initialisers(pybind11::module_& m);  // initialisers.cc
void add_builders(pybind11::module_& m);      // builders.cc
void add_trainer_types(PyObject* module);     // trainers.cc
void add_trainer_state(PyObject* module);     // trainer_state.cc
void add_gradients(PyObject* module);         // gradients.cc
// Python functions that are called with a trainer, for the processes of one job (dynet_compat/distributed/).
enum class TrainerHook : uint8_t { made, update, before_save, after_save, before_load };
// Calls the hook, if there is one. False: it returned False, so nothing is to be updated or saved. Throws
// what it raises. `argument`: scale of an update, path of a save.
bool call_trainer_hook(TrainerHook hook, PyObject* trainer, PyObject* argument = nullptr);  // gradients.cc
bool has_trainer_hook(TrainerHook hook);
// RuntimeError where a subclass has not called __init__().
Trainer& trainer_of(PyObject* trainer);
// Sets an __init__ that pybind11 shall not take for a constructor.
void replace_init(const pybind11::object& type, const pybind11::cpp_function& init);  // initialisers.cc
void add_copies(pybind11::module_& m);                                                // copies.cc
void add_files(pybind11::module_& m);                                                 // files.cc
void add_tensor_functions(pybind11::module_& m);                                      // tensor.cc
void add_user_ops(pybind11::module_& m);                                              // user_ops.cc
void add_exchange(pybind11::module_& m);                                              // exchange.cc
void add_devices(pybind11::module_& m);                                               // devices.cc

// The initialiser that the argument `init` of add_parameters() means; null: not recognised. `last`: last size
// of the dim argument.
struct InitNumbers {
  PyObject *scale, *mean, *std;  // null: the default
};
InitialiserPtr initialiser_of(PyObject* init, const InitNumbers& numbers, uint32_t last, const char* op);

}  // namespace dyc::py
