"""`qos.connect`: one end of assured messaging that stays connected."""
