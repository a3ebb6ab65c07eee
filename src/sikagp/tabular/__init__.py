"""From a table in a file to a calibrated model, and back to a table of predictions.

Behind ``sikagp fit`` and ``sikagp predict``; needs pandas (extra ``experiments``). Import from the
modules: :mod:`~sikagp.tabular.files`, :mod:`~sikagp.tabular.columns`,
:mod:`~sikagp.tabular.model`, :mod:`~sikagp.tabular.workflow`.
"""
