"""How notices reach people. The entrance is `qo.notify.notifier`; `qo.notify.signing` is for receivers of webhooks."""
