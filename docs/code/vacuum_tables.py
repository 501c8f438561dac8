from qos.audit.snapshot import snapshot

for table in snapshot("audit").values():
    table.update_incremental()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
