"""onnx_forms.py FILE: writes the model of an ONNX file in other forms, by onnx's own library:
saved.onnx (nothing else), typed.onnx (numbers in float_data), double.onnx (float64), half.onnx,
half-typed.onnx (numbers in int32_data), brain.onnx (bfloat16), outside.onnx (numbers in
outside.data). Those whose values are others have no notes."""

import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


def as_bytes(number_type):
    return lambda name, values: numpy_helper.from_array(values.astype(number_type), name)


def converted(make, keep_notes=True):
    """The model with each float constant as `make` gives it."""
    model = onnx.load(sys.argv[1])
    for constant in model.graph.initializer:
        if constant.data_type == TensorProto.FLOAT:
            constant.CopyFrom(make(constant.name, numpy_helper.to_array(constant)))
    if not keep_notes:
        del model.metadata_props[:]
        model.producer_name = "onnx_forms"
    return model


def typed(number_type):
    return lambda name, values: helper.make_tensor(
        name, number_type, values.shape, values.flatten().tolist()
    )


onnx.save(converted(as_bytes(numpy.float32)), "saved.onnx")
onnx.save(converted(typed(TensorProto.FLOAT)), "typed.onnx")
onnx.save(converted(as_bytes(numpy.float64)), "double.onnx")
onnx.save(converted(as_bytes(numpy.float16), False), "half.onnx")
onnx.save(converted(typed(TensorProto.FLOAT16), False), "half-typed.onnx")
onnx.save(converted(typed(TensorProto.BFLOAT16), False), "brain.onnx")
onnx.save_model(
    onnx.load(sys.argv[1]), "outside.onnx", save_as_external_data=True, location="outside.data"
)
