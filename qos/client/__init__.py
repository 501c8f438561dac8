"""`qos.connect`: an endpoint of assured messaging that stays connected."""
